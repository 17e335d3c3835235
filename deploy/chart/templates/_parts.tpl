{{/* The parts of the components. */}}
{{- define "chancery.controllerArgs" -}}
- controller
{{ include "chancery.baseArgs" . }}
{{- if .Values.config }}
- --config=/var/cert-manager/config/config.yaml
{{- end }}
- --cluster-resource-namespace={{ default "$(POD_NAMESPACE)" .Values.clusterResourceNamespace }}
- --admission-namespace=$(POD_NAMESPACE)
{{ include "chancery.electionArgs" . }}
{{- if not ((.Values.config).acmeHTTP01Config).solverImage }}
- --acme-http01-solver-image={{ include "chancery.image" (dict "root" . "image" .Values.acmesolver.image "name" "chancery") }}
{{- end }}
{{- with .Values.acmesolver.runtimeClassName | default .Values.global.runtimeClassName }}
- --acme-http01-solver-runtime-class-name={{ . }}
{{- end }}
- --acme-http01-responder={{ include "chancery.namespace" . }}/{{ include "chancery.name" (dict "root" . "component" "responder") }}
{{- if not .Values.chancery.responder.enabled }}
- --acme-http01-mode=pod
{{- end }}
- --max-concurrent-challenges={{ int .Values.maxConcurrentChallenges }}
{{- with .Values.chancery.namespaces }}
- --namespace={{ join "," . }}
{{- end }}
{{- with .Values.featureGates }}
- --feature-gates={{ . }}
{{- end }}
{{- with .Values.chancery.certificateSigningRequests }}
- --csr-approval={{ . }}
{{- else }}
- --csr-needs-feature-gate
{{- end }}
{{- if .Values.chancery.podCertificates }}
- --pod-certificates
{{- end }}
{{- if has .Values.chancery.trustBundles (list "cluster-issuers" "all") }}
- --trust-bundles={{ .Values.chancery.trustBundles }}
{{- end }}
{{- with .Values.ingressShim }}
{{- range $flag, $value := dict "name" .defaultIssuerName "kind" .defaultIssuerKind "group" .defaultIssuerGroup }}
{{- with $value }}
- --default-issuer-{{ $flag }}={{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.enableCertificateOwnerRef }}
- --enable-certificate-owner-ref=true
{{- end }}
{{- with .Values.dns01RecursiveNameservers }}
- --dns01-recursive-nameservers={{ . }}
{{- end }}
{{- if .Values.dns01RecursiveNameserversOnly }}
- --dns01-recursive-nameservers-only=true
{{- end }}
{{- if .Values.disableAutoApproval }}
- --auto-approve=false
{{- else }}
- --approve-signer-names={{ join "," .Values.approveSignerNames }}
{{- end }}
{{- if .Values.chancery.dns.enabled }}
- --dns01-provider-programs=*=unix:/run/chancery/dns.sock
{{- end }}
{{- end -}}

{{- define "chancery.proxyEnv" -}}
{{- range $name := list "http_proxy" "https_proxy" "no_proxy" }}
{{- with index $.Values $name }}
- {name: {{ upper $name }}, value: {{ . | quote }}}
{{- end }}
{{- end }}
{{- end -}}

{{- define "chancery.controllerVolumes" -}}
{{- if .Values.config }}
- name: config
  configMap:
    name: {{ include "chancery.fullname" . }}
{{- end }}
{{- if .Values.chancery.dns.enabled }}
- name: chancery-dns
  emptyDir: {medium: Memory}
- name: no-token
  emptyDir: {}
{{- end }}
{{- end -}}

{{- define "chancery.controllerMounts" -}}
{{- if .Values.config }}
- {name: config, mountPath: /var/cert-manager/config}
{{- end }}
{{- if .Values.chancery.dns.enabled }}
- {name: chancery-dns, mountPath: /run/chancery}
{{- end }}
{{- end -}}

{{- define "chancery.controllerProbes" -}}
{{- if .Values.livenessProbe.enabled }}
{{ include "chancery.probe" (dict "name" "livenessProbe" "path" "/livez" "port" "http-healthz" "times" .Values.livenessProbe) }}
{{- end }}
readinessProbe:
  httpGet:
    path: /readyz
    port: http-healthz
{{- end -}}

{{- define "chancery.controllerSidecars" -}}
{{- if .Values.chancery.dns.enabled }}
- name: chancery-dns
  image: {{ include "chancery.image" (dict "root" . "image" .Values.image "name" "chancery-dns") | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args: [serve, /run/chancery/dns.sock, --v={{ .Values.global.logLevel }}]
  {{- with .Values.containerSecurityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  env:
    {{- include "chancery.proxyEnv" . | trim | nindent 4 }}
    {{- with .Values.chancery.dns.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumeMounts:
    - {name: chancery-dns, mountPath: /run/chancery}
    # In the place of the controller's token.
    - {name: no-token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
    {{- with .Values.chancery.dns.volumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.chancery.dns.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- with .Values.extraContainers }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "chancery.responderArgs" -}}
- responder
{{ include "chancery.baseArgs" . }}
{{- if .Values.chancery.responder.tlsALPN01 }}
- --tlsalpn01-listen-address=:8443
{{- end }}
{{- with .Values.chancery.namespaces }}
- --namespace={{ join "," . }}
{{- end }}
{{- end -}}

{{- define "chancery.responderPorts" -}}
- {name: http, containerPort: 8089, protocol: TCP}
{{- if .Values.chancery.responder.tlsALPN01 }}
- {name: tls-alpn, containerPort: 8443, protocol: TCP}
{{- end }}
{{- end -}}

{{- define "chancery.responderServicePorts" -}}
- {name: http, port: 8089, targetPort: http, protocol: TCP}
{{- if .Values.chancery.responder.tlsALPN01 }}
- {name: tls-alpn, port: 8443, targetPort: tls-alpn, protocol: TCP}
{{- end }}
{{- end -}}

{{- define "chancery.responderProbes" -}}
livenessProbe:
  httpGet: {path: /livez, port: http-healthz}
readinessProbe:
  httpGet: {path: /readyz, port: http-healthz}
{{- end }}

{{- define "chancery.injectorArgs" -}}
- cainjector
{{ include "chancery.baseArgs" . }}
{{- if .Values.cainjector.config }}
- --config=/var/cert-manager/config/config.yaml
{{- end }}
{{ include "chancery.electionArgs" . }}
{{- with .Values.cainjector.featureGates }}
- --feature-gates={{ . }}
{{- end }}
{{- end -}}

{{- define "chancery.injectorProbes" -}}
livenessProbe:
  httpGet: {path: /livez, port: http-healthz}
readinessProbe:
  httpGet: {path: /readyz, port: http-healthz}
{{- end }}

{{- define "chancery.monitor" -}}
metadata:
  name: {{ include "chancery.fullname" .root }}
  namespace: {{ .monitor.namespace | default (include "chancery.namespace" .root) | quote }}
  labels:
    {{- include "chancery.labels" (merge (dict "more" (merge (dict) (.monitor.labels | default dict) (dict "prometheus" .monitor.prometheusInstance))) .) | nindent 4 }}
  {{- with .monitor.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  jobLabel: app.kubernetes.io/name
  selector:
    matchExpressions:
      - {key: app.kubernetes.io/name, operator: In, values: [cainjector, {{ include "chancery.app" . }}, webhook]}
      - {key: app.kubernetes.io/instance, operator: In, values: [{{ .root.Release.Name | quote }}]}
      - {key: app.kubernetes.io/component, operator: In, values: [cainjector, controller, webhook]}
  {{- if .monitor.namespace }}
  namespaceSelector:
    matchNames: [{{ include "chancery.namespace" .root | quote }}]
  {{- end }}
  {{ .endpoints }}:
    - {{ .port }}: http-metrics
      path: /metrics
      interval: {{ .monitor.interval }}
      scrapeTimeout: {{ .monitor.scrapeTimeout }}
      honorLabels: {{ .monitor.honorLabels }}
      {{- with .monitor.endpointAdditionalProperties }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
{{- end -}}

{{- define "chancery.grant" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .namespace | empty | ternary "ClusterRole" "Role" }}
metadata:
  {{- include (.namespace | empty | ternary "chancery.clusterMeta" "chancery.meta") . | nindent 2 }}
rules:
  {{- toYaml .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .namespace | empty | ternary "ClusterRoleBinding" "RoleBinding" }}
metadata:
  {{- include (.namespace | empty | ternary "chancery.clusterMeta" "chancery.meta") . | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .namespace | empty | ternary "ClusterRole" "Role" }}
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "chancery.serviceAccount" . }}
    namespace: {{ include "chancery.namespace" .root | quote }}
{{ end }}

{{- define "chancery.webhookArgs" -}}
- webhook
{{ include "chancery.baseArgs" . }}
{{- $runs := include "chancery.webhookRuns" . }}
{{- if and $runs .Values.webhook.config }}
- --config=/var/cert-manager/config/config.yaml
{{- end }}
- --secure-port={{ .Values.webhook.securePort }}
{{- $name := include "chancery.name" (dict "root" . "component" "webhook") }}
{{- $namespace := include "chancery.namespace" . }}
- --mutating-webhook-configuration={{ $name }}
- --dynamic-serving-ca-secret-namespace={{ $namespace }}
- --dynamic-serving-ca-secret-name={{ $name }}-serving-ca
- --dynamic-serving-dns-names={{ $name }},{{ $name }}.{{ $namespace }},{{ $name }}.{{ $namespace }}.svc{{ if and $runs .Values.webhook.url.host }},{{ .Values.webhook.url.host }}{{ end }}
{{- with .Values.webhook.featureGates }}
- --feature-gates={{ . }}
{{- end }}
{{- end -}}

{{- define "chancery.webhookPorts" -}}
- {name: https, containerPort: {{ .Values.webhook.securePort }}, protocol: TCP}
- {name: healthcheck, containerPort: 6080, protocol: TCP}
{{- end -}}

{{- define "chancery.webhookServicePorts" -}}
- {name: https, port: 443, targetPort: https, protocol: TCP}
{{- if .Values.prometheus.enabled }}
- {name: http-metrics, port: 9402, targetPort: http-metrics, protocol: TCP}
{{- end }}
{{- end -}}

{{- define "chancery.webhookProbes" -}}
{{ include "chancery.probe" (dict "name" "livenessProbe" "path" "/livez" "port" "healthcheck" "times" .Values.webhook.livenessProbe) }}
{{ include "chancery.probe" (dict "name" "readinessProbe" "path" "/healthz" "port" "healthcheck" "times" .Values.webhook.readinessProbe) }}
{{- end -}}
