# What cert-manager and its users have left on the cluster of docs/from-cert-manager.md.
kubectl apply -f examples/ -f - <<'END'
apiVersion: apps/v1
kind: Deployment
metadata:
  name: cert-manager
  namespace: cert-manager
  labels: {app.kubernetes.io/instance: cert-manager, app.kubernetes.io/managed-by: Helm}
spec:
  selector: {matchLabels: {app.kubernetes.io/component: controller}}
  template:
    metadata: {labels: {app.kubernetes.io/component: controller}}
    spec:
      containers:
        - name: cert-manager-controller
          image: quay.io/jetstack/cert-manager-controller:v1.21.0
          args: ["--v=2", "--leader-election-namespace=kube-system"]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: cert-manager-webhook
  annotations: {cert-manager.io/inject-ca-from-secret: cert-manager/cert-manager-webhook-ca}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: widgets
  annotations: {cert-manager.io/inject-ca-from: widgets/serving}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: both}
spec:
  acme:
    server: https://127.0.0.1:1/directory
    privateKeySecretRef: {name: account}
    solvers:
      - dns01: {route53: {region: eu-central-1}}
      - http01: {ingress: {ingressClassName: nginx}}
END
# The definitions are those of another owner.
kubectl apply --server-side --force-conflicts --field-manager=helm -f api/crds
kubectl wait --namespace demo --for=condition=Ready --timeout=60s certificate/by-ca
