package cause

import "chancery.dev/internal/fault"

// Row is a class of causes in the table.
type Row struct {
	Class Class
	// Meaning is what the class means, in the words that stand between subject and message; may be empty.
	Meaning string
	// Helps is what helps if only the class is known.
	Helps string
}

const (
	patient = "Wait: it is tried again by itself. Do not delete the Certificate and make it anew: each order counts against the limit. " +
		"Another issuer can help sooner"
	correct  = "Correct what the cause names: it is tried again by itself then"
	refused  = "the API server refuses the write"
	webhooks = "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations"
	quota    = "Raise the ResourceQuota of the Namespace, or delete what is not needed: kubectl describe resourcequota"
)

// table is the one of all classes: a class that is new gets its row here.
func table() []Row {
	return append([]Row{
		{Class(fault.ClassPermanent), "refused for good", "Change the Certificate or the issuer as the cause says: the same request would be refused again"},
		{Class(fault.ClassPolicy), "a policy of the CA forbids it", "Ask for what the CA's policy allows, or have its administrator allow what " +
			"the Certificate asks for. Then try again at once: kubectl chancery renew"},
		{Class(fault.ClassRefused), "refused", correct},
		{Class(fault.ClassValidation), "not proved", "The CA has to get the answer that the cause names from the internet: correct the route, the firewall or the DNS record on the way"},
		{Class(fault.ClassSelfCheck), "the self check does not see the answer", "The CA has to get the answer that the cause names from the internet: correct the route, the firewall or the DNS record on the way"},
		{Class(fault.ClassSolver), "the solver cannot present the answer", correct},
		{Class(fault.ClassRateLimited), "the other side wants fewer requests", patient},
		{Class(fault.ClassPaused), "the CA has paused it", "Correct first why the CA could not validate the names before. Then open the link in the " +
			"cause, and lift the pause there. The order is tried again by itself"},
		{Class(fault.ClassUnavailable), "not reached, or out of order", "Check the address, and firewalls and network policies on the way from " +
			"the controller. If they are right, the other side is out of order: look at its status page. It is tried again by itself"},
		{Class(fault.ClassCredential), "the credential was refused", "Correct the credential in the Secret that the issuer names, or give it the right that the cause names: a changed Secret is tried at once"},
		{Class(fault.ClassNotFound), "the other side does not know it", "Correct the path, the role or the zone in the spec of the issuer, or create it on the other side"},
		{Class(fault.ClassConfiguration), "", correct},
		{IssuerMissing, "does not exist", "Create the issuer, or correct spec.issuerRef of the Certificate (name, kind, group)"},
		{IssuerNotReady, "is not ready", "Correct the issuer as the cause says: the Certificate goes on by itself then"},
		{NoSolver, "no solver of the issuer is for it", "Change the selectors of spec.acme.solvers of the issuer, or add a solver for the name"},
		{Denied, "the request was denied", "Ask the approver who denied it, or have the Certificate ask for what the approver allows. " +
			"Then try again at once: kubectl chancery renew"},
		{NotApproved, "nobody has approved or denied the request", "Approve it, if you may: kubectl chancery approve"},
		{SecretShared, "", "Give the Certificate another spec.secretName"},
		{IssuedTooOften, "issued too often", "Have whoever changes or deletes the Secret leave it alone, or choose another spec.secretName"},
		{KeyNotReplaced, "", "Set spec.privateKey.rotationPolicy to Always, or delete the Secret"},
		{PasswordMissing, "", "Create the Secret with the password that the cause names; if the Secret is there, add the key that the cause names"},
		{NoRequest, "", "Correct the spec of the Certificate as the cause says"},
		{RenewalWindows, "", "Change spec.renewal.windows such that a window opens between the renewal and the expiry"},
		{InTheWay, "", "Delete the object that the cause names, if nobody needs it"},
		{WrongCertificate, "", "Have whoever runs the issuer correct it. Another issuer can help sooner"},
		{UsageLeftOut, "", "Remove the usages that the cause names from spec.usages, or have the issuer allow " +
			"them and renew the Certificate: kubectl chancery renew. For clients, public CAs issue no certificates: take an issuer of your own CA"},
		{Paused, "", "Remove the annotation that pauses the Certificate"},
		{ObjectTooLarge, "", "Take out labels, annotations or entries of the Certificate, and of its spec.secretTemplate, that nobody needs"},
		{NoController, "", "See whether the controller runs, and what it logs: kubectl get pods -n cert-manager"},
		{CAExpired, "", "Put a CA certificate that is good, and its key, into the Secret of the issuer, and renew the Certificate"},
		{Other, "", correct},
	}, writes()...)
}

// writes are the rows of what the API server refuses.
func writes() []Row {
	return []Row{
		{Immutable, refused + ", because the object is immutable", "Delete the object: it is made anew at once"},
		{Quota, refused + " because of a quota", quota},
		{Admission, refused + " because of a policy", "Have the policy allow the write, or change what the Certificate asks for, such as spec.secretTemplate"},
		{Webhook, refused + ", because a webhook is out of order", "Repair the webhook that the cause names, or delete its configuration: " + webhooks},
		{ServerError, "the API server fails at the write", "Have whoever runs the cluster look at what the API server logs about the error that the cause names"},
		{Rights, refused + ", because the controller has no right to it", "Give the controller's service account the right that the cause names"},
		{NamespaceTerminating, refused + ", because the Namespace is being deleted", "Nothing helps in this Namespace: make the Certificate in another one"},
		{TooLarge, refused + ", because the object is too large", "Have the Certificate ask for less: fewer names, keystores, additionalOutputFormats or annotations of spec.secretTemplate"},
		{Invalid, refused, "Correct what the API server names. Labels and annotations of a Secret are those of spec.secretTemplate"},
	}
}

// Table returns all rows, for documents and tests.
func Table() []Row { return table() }

// helps is what helps against a class of which nothing else is known.
func helps(class Class) string {
	for _, r := range table() {
		if r.Class == class {
			return r.Helps
		}
	}
	return correct
}
