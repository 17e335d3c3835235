# What the reader of docs/replace-a-ca.md has: a CA of the cluster, a CA of his own, and a certificate by each.
kubectl apply -f examples/
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout old.key -out old.crt -days 400 \
  -subj '/O=Example/CN=Example Root' -addext keyUsage=critical,keyCertSign,cRLSign
kubectl create secret tls own-ca --namespace cert-manager --cert old.crt --key old.key
kubectl apply -f - <<'END'
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: own, annotations: {chancery.dev/deliver-roots: "true"}}
spec: {ca: {secretName: own-ca}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: by-own, namespace: demo}
spec: {secretName: by-own-tls, dnsNames: [own.demo.svc], issuerRef: {kind: ClusterIssuer, name: own}}
END
kubectl wait --namespace demo --for=condition=Ready --timeout=120s certificate/by-ca certificate/by-own
