// Package kubecache keeps in memory what decisions need of Secrets and CertificateRequests. It keeps no bodies of the
// thousands of objects that are in order (docs/decisions/0008-what-is-kept-of-secrets.md).
//
// There are two watches of Secrets. Of those with our label, metadata, owners and decoded facts are kept. Of those
// without, the version is kept: a cluster may have tens of thousands. This is what is known of the name of a Secret:
//
//	         made with our label               made without our label
//	    ┌────────────────────────── UNKNOWN ──────────────────────────┐
//	    │                              ▲                              │
//	    │         a minute has passed, │ or the API server            │
//	    ▼         says that the Secret │ is gone                      ▼
//	LABELLED                           │                         UNLABELLED
//	metadata, owners, facts            │                         version
//	  │   ▲  loses the label,          │       gets the label,     ▲   │
//	  │   │  or is deleted             │       or is deleted       │   │
//	  │   └─────────────────────── IN DOUBT ───────────────────────┘   │
//	  └────────────────────────► time of leaving ◄─────────────────────┘
//
// A Secret whose label changes leaves one watch before or after it enters the other: the two watches are not in step.
// While a name is IN DOUBT and neither watch has it, a reader asks the API server, and does not take the Secret for
// deleted: a certificate would be issued again. LABELLED begins when the watch decodes a Secret, before the cache has
// it, and ends when the time of leaving is noted: there is no moment in between.
//
// Beside that, the body of a Secret that was read in full, or that we have just written, is kept until the Secret
// changes or leaves its watch, for an hour at most. What we have written is newer than what the watch shows:
// internal/overlay knows that, and nothing here does.
//
// Of a CertificateRequest that is issued, the PKCS#10 request and the certificate are kept until the Certificate that
// it is for has stored them (Requests).
package kubecache
