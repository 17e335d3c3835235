{{/* chancery.fullname is cert-manager's: R-cert-manager, or cert-manager for the release of that name. */}}
{{- define "chancery.fullname" -}}
{{- $name := default "cert-manager" .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* chancery.name is the name of the objects of a component: dict root, component. */}}
{{- define "chancery.name" -}}
{{- $fullname := include "chancery.fullname" .root -}}
{{- if eq .component "controller" -}}{{ $fullname }}{{- else -}}{{ printf "%s-%s" ($fullname | trunc 46 | trimSuffix "-") .component }}{{- end -}}
{{- end -}}

{{- define "chancery.namespace" -}}{{ default .Release.Namespace .Values.namespace }}{{- end -}}

{{/* chancery.values are the values of a component: dict root, component. */}}
{{- define "chancery.values" -}}
{{- if eq .component "controller" -}}{{ toYaml .root.Values }}
{{- else if eq .component "responder" -}}{{ toYaml .root.Values.chancery.responder }}
{{- else -}}{{ toYaml (index .root.Values .component) }}{{- end -}}
{{- end -}}

{{/* chancery.app is the word in the labels app and app.kubernetes.io/name. */}}
{{- define "chancery.app" -}}
{{- if has .component (list "controller" "crds") -}}{{ default "cert-manager" .root.Values.nameOverride }}{{- else -}}{{ .component }}{{- end -}}
{{- end -}}

{{/* chancery.selector are the labels by which the pods of a component are selected. A Deployment's cannot be changed. */}}
{{- define "chancery.selector" -}}
app.kubernetes.io/name: {{ include "chancery.app" . | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component | quote }}
{{- end -}}

{{/* chancery.labels are the labels of all objects of a component; more has further ones. */}}
{{- define "chancery.labels" -}}
{{- $own := include "chancery.selector" . | fromYaml -}}
{{- $_ := set $own "app" (include "chancery.app" .) -}}
{{- $_ := set $own "app.kubernetes.io/version" .root.Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" .root.Release.Service -}}
{{- if eq .root.Values.creator "helm" -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- end -}}
{{- merge $own (.more | default dict) (.root.Values.global.commonLabels | default dict) | toYaml -}}
{{- end -}}

{{/* chancery.meta is the beginning of an object's metadata: dict root, component, and name where that is another one. */}}
{{- define "chancery.meta" -}}
name: {{ .name | default (include "chancery.name" .) }}
namespace: {{ .namespace | default (include "chancery.namespace" .root) | quote }}
labels:
  {{- include "chancery.labels" . | nindent 2 }}
{{- end -}}

{{- define "chancery.clusterMeta" -}}
name: {{ .name | default (include "chancery.name" .) }}
labels:
  {{- include "chancery.labels" . | nindent 2 }}
{{- end -}}

{{/* chancery.serviceAccount is the name of the ServiceAccount of a component: dict root, component. */}}
{{- define "chancery.serviceAccount" -}}
{{- $account := (include "chancery.values" . | fromYaml).serviceAccount | default dict -}}
{{- if $account.create -}}{{ default (include "chancery.name" .) $account.name }}{{- else -}}{{ default "default" $account.name }}{{- end -}}
{{- end -}}

{{/* chancery.image is the image of pods: dict root, image (the values of the component's image), name (chancery, or
     chancery-dns). Nothing leads to an image of cert-manager. */}}
{{- define "chancery.image" -}}
{{- $own := ternary .root.Values.chancery.dns.image .root.Values.chancery.image (eq .name "chancery-dns") -}}
{{- if $own -}}{{ $own }}
{{- else -}}
{{- $registry := default .root.Values.imageRegistry (default dict .image).registry -}}
{{- $namespace := .root.Values.imageNamespace -}}
{{- if and (eq $registry "quay.io") (eq $namespace "jetstack") -}}{{- $registry = "localhost" -}}{{- $namespace = "" -}}{{- end -}}
{{- list $registry $namespace .name | compact | join "/" }}:{{ .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* chancery.leaseNamespace holds the leases. Releases that work in some namespaces only have leases of their own. */}}
{{- define "chancery.leaseNamespace" -}}
{{- $named := default "kube-system" .Values.global.leaderElection.namespace -}}
{{- if and .Values.chancery.namespaces (eq $named "kube-system") -}}{{ include "chancery.namespace" . }}{{- else -}}{{ $named }}{{- end -}}
{{- end -}}

{{- define "chancery.electionArgs" -}}
- --leader-election-namespace={{ include "chancery.leaseNamespace" . }}
{{- range $flag, $value := dict "lease-duration" .Values.global.leaderElection.leaseDuration "renew-deadline" .Values.global.leaderElection.renewDeadline "retry-period" .Values.global.leaderElection.retryPeriod }}
{{- with $value }}
- --leader-election-{{ $flag }}={{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* chancery.injects is not empty where CA bundles are injected. */}}
{{- define "chancery.injects" -}}
{{- if and .Values.cainjector.enabled (not .Values.chancery.namespaces) }}true{{ end -}}
{{- end -}}

{{/* chancery.fills is the version of the MutatingAdmissionPolicies by which the API server fills in who makes a
     CertificateRequest; empty where it serves none. */}}
{{- define "chancery.fills" -}}
{{- $group := "admissionregistration.k8s.io" -}}
{{- if semverCompare ">=1.36-0" .Capabilities.KubeVersion.Version -}}{{ $group }}/v1
{{- else if .Capabilities.APIVersions.Has (printf "%s/v1beta1/MutatingAdmissionPolicy" $group) -}}{{ $group }}/v1beta1
{{- end -}}
{{- end -}}

{{/* chancery.webhookRuns is not empty where the webhook has to do that. */}}
{{- define "chancery.webhookRuns" -}}
{{- if not (or (include "chancery.fills" .) .Values.chancery.namespaces) }}true{{ end -}}
{{- end -}}
