{{/* chancery.refuse ends the rendering where a value would be ignored that somebody counts on. */}}
{{- define "chancery.refuse" -}}
{{- $refused := list -}}
{{- $images := dict "image" .Values.image "webhook.image" .Values.webhook.image "cainjector.image" .Values.cainjector.image "acmesolver.image" .Values.acmesolver.image "startupapicheck.image" .Values.startupapicheck.image -}}
{{- if not .Values.chancery.image -}}
{{- range .Values.extraArgs -}}
{{- if hasPrefix "--acme-http01-solver-image" (toString .) -}}
{{- $refused = append $refused (printf "extraArgs: %s names an image of cert-manager, which is not run here: set chancery.image to an image of Chancery, or remove this argument" .) -}}
{{- end -}}
{{- end -}}
{{- with ((.Values.config).acmeHTTP01Config).solverImage -}}
{{- $refused = append $refused (printf "config.acmeHTTP01Config.solverImage: %s is an image of cert-manager, which is not run here: set chancery.image to an image of Chancery, or remove this value" .) -}}
{{- end -}}
{{- range $path, $image := $images -}}
{{- range $field := list "repository" "tag" "digest" -}}
{{- if index $image $field -}}
{{- $refused = append $refused (printf "%s.%s: it names an image of cert-manager, which is not run here: set chancery.image to an image of Chancery, or remove this value" $path $field) -}}
{{- end -}}
{{- end -}}
{{- if not (or (has ($image.name | default "") (list "" "chancery")) (hasPrefix "cert-manager-" $image.name)) -}}
{{- $refused = append $refused (printf "%s.name: it names an image of cert-manager, which is not run here: set chancery.image to an image of Chancery, or remove this value" $path) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.chancery.dns.image (not .Values.chancery.dns.enabled) -}}
{{- $refused = append $refused "chancery.dns.image: set chancery.dns.enabled, too" -}}
{{- end -}}
{{- if and .Values.chancery.namespaces .Values.clusterResourceNamespace -}}
{{- $refused = append $refused "clusterResourceNamespace: ClusterIssuers are left to others where chancery.namespaces is set: remove one of both" -}}
{{- end -}}
{{- if and .Values.chancery.namespaces .Values.chancery.podCertificates -}}
{{- $refused = append $refused "chancery.podCertificates: Pods are left to others where chancery.namespaces is set: remove one of both" -}}
{{- end -}}
{{- if and .Values.chancery.namespaces (has .Values.chancery.trustBundles (list "cluster-issuers" "all")) -}}
{{- $refused = append $refused "chancery.trustBundles: ClusterTrustBundles are cluster-scoped, and chancery.namespaces is set: remove one of both" -}}
{{- end -}}
{{- if and .Values.chancery.podCertificates (not .Values.chancery.admissionPolicies.enabled) -}}
{{- $refused = append $refused "chancery.podCertificates: set chancery.admissionPolicies.enabled, too: one of the policies lets only nodes ask for Pods" -}}
{{- end -}}
{{- if .Values.chancery.certificateSigningRequests -}}
{{- if .Values.chancery.namespaces -}}
{{- $refused = append $refused "chancery.certificateSigningRequests: they are left to others where chancery.namespaces is set: remove one of both" -}}
{{- else if regexMatch "(^|,)\\s*ExperimentalCertificateSigningRequestControllers=[fF0]" .Values.featureGates -}}
{{- $refused = append $refused "chancery.certificateSigningRequests: featureGates switches ExperimentalCertificateSigningRequestControllers off: remove one of both" -}}
{{- end -}}
{{- end -}}
{{- if not (or .Values.disableAutoApproval .Values.approveSignerNames) -}}
{{- $refused = append $refused "approveSignerNames: it is empty, and no request would be approved: name signers, or set disableAutoApproval" -}}
{{- end -}}
{{- if $refused -}}
{{- fail (printf "\n%s" (join "\n" $refused)) -}}
{{- end -}}
{{- end -}}

{{/* chancery.withoutEffect are the values that have no meaning here, with their defaults. */}}
{{- define "chancery.withoutEffect" -}}
enabled: true
global.podSecurityPolicy.enabled: false
global.podSecurityPolicy.useAppArmor: true
acmesolver.image.pullPolicy: IfNotPresent
webhook.validatingWebhookConfiguration.namespaceSelector: {matchExpressions: [{key: cert-manager.io/disable-validation, operator: NotIn, values: ["true"]}]}
webhook.validatingWebhookConfigurationAnnotations: {}
webhook.enableClientVerification: false
webhook.clientCAFile: ""
webhook.apiserverClientCertSubjects: ""
{{- if not (include "chancery.webhookRuns" .) }}
webhook.replicaCount: 1
webhook.timeoutSeconds: 30
webhook.config: {}
webhook.url: {}
webhook.mutatingWebhookConfiguration.namespaceSelector: {}
webhook.mutatingWebhookConfigurationAnnotations: {}
{{- end }}
{{- end -}}
