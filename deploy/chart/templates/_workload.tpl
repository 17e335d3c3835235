{{/*
chancery.deployment is the Deployment of a component: dict root, component, args (YAML list), ports (YAML list), and
probes, mounts, volumes, containers, env (YAML) where there are any.
*/}}
{{- define "chancery.deployment" -}}
{{- $root := .root -}}
{{- $global := $root.Values.global -}}
{{- $v := include "chancery.values" . | fromYaml -}}
{{- $main := eq .component "controller" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "chancery.meta" . | nindent 2 }}
  {{- with $v.deploymentAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  replicas: {{ hasKey . "replicas" | ternary .replicas $v.replicaCount }}
  {{- if not (kindIs "invalid" $global.revisionHistoryLimit) }}
  revisionHistoryLimit: {{ int $global.revisionHistoryLimit }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "chancery.selector" . | nindent 6 }}
  {{- with $v.strategy }}
  strategy:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  template:
    metadata:
      labels:
        {{- include "chancery.labels" (merge (dict "more" $v.podLabels) .) | nindent 8 }}
      {{- $scraped := and $root.Values.prometheus.enabled (not (or $root.Values.prometheus.servicemonitor.enabled $root.Values.prometheus.podmonitor.enabled)) }}
      {{- with merge (dict) ($v.podAnnotations | default dict) ($scraped | ternary (dict "prometheus.io/path" "/metrics" "prometheus.io/scrape" "true" "prometheus.io/port" "9402") dict) }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      {{- include "chancery.podSpec" . | nindent 6 }}
      containers:
        - name: {{ $main | ternary "cert-manager-controller" (printf "cert-manager-%s" .component) }}
          image: {{ include "chancery.image" (dict "root" $root "image" $v.image "name" "chancery") | quote }}
          imagePullPolicy: {{ ($v.image | default dict).pullPolicy | default $root.Values.image.pullPolicy }}
          args:
            {{- .args | nindent 12 }}
            {{- with $v.extraArgs }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            {{- .ports | trim | nindent 12 }}
          {{- with .probes }}
          {{- . | trim | nindent 10 }}
          {{- end }}
          {{- include "chancery.container" . | trim | nindent 10 }}
        {{- with .containers }}
        {{- . | trim | nindent 8 }}
        {{- end }}
{{- end -}}

{{/* chancery.podSpec is a pod's specification but for its containers: dict root, component, volumes. */}}
{{- define "chancery.podSpec" -}}
{{- $global := .root.Values.global -}}
{{- $v := include "chancery.values" . | fromYaml -}}
serviceAccountName: {{ include "chancery.serviceAccount" . }}
{{- if hasKey $v "automountServiceAccountToken" }}
automountServiceAccountToken: {{ $v.automountServiceAccountToken }}
{{- end }}
enableServiceLinks: {{ $v.enableServiceLinks }}
{{- with $global.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $global.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with $v.runtimeClassName | default $global.runtimeClassName }}
runtimeClassName: {{ . | quote }}
{{- end }}
{{- if not (kindIs "invalid" $global.hostUsers) }}
hostUsers: {{ $global.hostUsers }}
{{- end }}
{{- with $v.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with merge (dict) ($v.nodeSelector | default dict) ($global.nodeSelector | default dict) }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $spread := $v.topologySpreadConstraints }}
{{- if and (has .component (list "controller" "cainjector" "webhook" "responder")) (not $spread) }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "chancery.selector" . | nindent 8 }}
{{- end }}
{{- with $spread }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if $v.hostNetwork }}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
{{- with $v.podDnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with $v.podDnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if or $v.volumes .volumes }}
volumes:
  {{- with .volumes }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $v.volumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* chancery.container is what all containers have: dict root, component, env, mounts. */}}
{{- define "chancery.container" -}}
{{- $v := include "chancery.values" . | fromYaml -}}
{{- with $v.containerSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
env:
  - name: POD_NAMESPACE
    valueFrom:
      fieldRef:
        fieldPath: metadata.namespace
  {{- if (($v.resources | default dict).limits | default dict).memory }}
  - name: CHANCERY_MEMORY_LIMIT
    valueFrom:
      resourceFieldRef:
        divisor: '0' # what the API server fills in: so an apply by another program sees no difference
        resource: limits.memory
  {{- end }}
  {{- with .env }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $v.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if or $v.volumeMounts .mounts }}
volumeMounts:
  {{- with .mounts }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $v.volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- with $v.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* chancery.probe is a probe with the times of the values: dict name, path, port, times. */}}
{{- define "chancery.probe" -}}
{{ .name }}:
  httpGet:
    path: {{ .path }}
    port: {{ .port }}
  {{- range $field := list "initialDelaySeconds" "periodSeconds" "timeoutSeconds" "successThreshold" "failureThreshold" }}
  {{- with index $.times $field }}
  {{ $field }}: {{ . }}
  {{- end }}
  {{- end }}
{{- end -}}

{{/* chancery.ports are the ports for metrics and probes. */}}
{{- define "chancery.ports" -}}
{{- if .root.Values.prometheus.enabled }}
- {name: http-metrics, containerPort: 9402, protocol: TCP}
{{- end }}
- {name: http-healthz, containerPort: 9403, protocol: TCP}
{{- end -}}

{{/* chancery.baseArgs are the flags that all commands have. */}}
{{- define "chancery.baseArgs" -}}
- --v={{ .Values.global.logLevel }}
{{- if not .Values.prometheus.enabled }}
- --metrics-listen-address=0
{{- end }}
{{- end -}}

{{/* chancery.companions are a component's ServiceAccount, PodDisruptionBudget and NetworkPolicies: dict root, component. */}}
{{- define "chancery.companions" -}}
{{- $root := .root -}}
{{- $v := include "chancery.values" . | fromYaml -}}
{{- if $v.serviceAccount.create }}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "chancery.meta" (merge (dict "name" (include "chancery.serviceAccount" .) "more" $v.serviceAccount.labels) .) | nindent 2 }}
  {{- with $v.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: {{ $v.serviceAccount.automountServiceAccountToken }}
{{- with $root.Values.global.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with $budget := $v.podDisruptionBudget }}
{{- if .enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "chancery.meta" $ | nindent 2 }}
spec:
  selector:
    matchLabels:
      {{- include "chancery.selector" $ | nindent 6 }}
  {{- $bounds := dict }}
  {{- range $bound := list "minAvailable" "maxUnavailable" }}
  {{- $value := toString (get $budget $bound) }}
  {{- if $value }}{{ $_ := set $bounds $bound (get $budget $bound) }}{{ end }}
  {{- end }}
  {{- toYaml ($bounds | default (dict (eq $.component "responder" | ternary "maxUnavailable" "minAvailable") 1)) | nindent 2 }}
  {{- with .unhealthyPodEvictionPolicy }}
  unhealthyPodEvictionPolicy: {{ . }}
  {{- end }}
{{- end }}
{{- end }}
{{- with $v.networkPolicy }}
{{- if .enabled }}
{{- range $direction, $rules := dict "ingress" .ingress "egress" .egress }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "chancery.meta" (merge (dict "name" (printf "%s-allow-%s" (include "chancery.name" $) $direction)) $) | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "chancery.selector" $ | nindent 6 }}
  policyTypes: [{{ title $direction }}]
  {{ $direction }}:
    {{- toYaml $rules | nindent 4 }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* chancery.service is a component's Service: dict root, component, ports (YAML). */}}
{{- define "chancery.service" -}}
{{- $v := include "chancery.values" . | fromYaml -}}
apiVersion: v1
kind: Service
metadata:
  {{- include "chancery.meta" (merge (dict "more" $v.serviceLabels) .) | nindent 2 }}
  {{- with $v.serviceAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  type: {{ $v.serviceType | default "ClusterIP" }}
  {{- with $v.loadBalancerIP }}
  loadBalancerIP: {{ . }}
  {{- end }}
  {{- with $v.serviceIPFamilyPolicy }}
  ipFamilyPolicy: {{ . }}
  {{- end }}
  {{- with $v.serviceIPFamilies }}
  ipFamilies:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  ports:
    {{- .ports | nindent 4 }}
  selector:
    {{- include "chancery.selector" . | nindent 4 }}
{{- end -}}
