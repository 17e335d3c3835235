# What the reader of docs/move.md has: a cluster, and certificates on one machine.
kubectl config rename-context chancery new-cluster
mkfifo held
chancery-standalone up --exit-with-parent --unsafe-no-fsync --data-dir machine \
  --kubeconfig-out ~/.local/share/chancery/kubeconfig >source.log 2>&1 <held & source=$!
exec 9>held # it ends with this shell
trap 'exec 9>&-; wait $source' EXIT
until grep -qx ready source.log; do kill -0 $source || { cat source.log; exit 1; }; sleep 0.1; done
( export KUBECONFIG=~/.local/share/chancery/kubeconfig
  kubectl apply -f examples/
  kubectl wait --namespace demo --for=condition=Ready --timeout=120s certificate/by-ca
)
