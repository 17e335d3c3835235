# What the reader of docs/operations.md has on the cluster already.
kubectl apply -f examples/
kubectl wait --namespace demo --for=condition=Ready --timeout=60s certificate/by-ca
