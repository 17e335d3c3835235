# The certificate that the reader of docs/from-certbot.md has got from Let's Encrypt.
kubectl apply -f - <<'END'
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: letsencrypt}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: www}
spec:
  secretName: www-tls
  dnsNames: [www.your-domain.example]
  issuerRef: {name: letsencrypt}
END
kubectl wait --for=condition=Ready --timeout=60s certificate/www
