// Package secrets keeps in memory the parts of Secrets that decisions need. It does not keep the data of the thousands
// of Secrets that need no work (docs/decisions/0008-what-is-kept-of-secrets.md).
//
// The package has two watches: one for Secrets with our label (certmanagerv1.ManagedSecretLabel), and one for all other
// Secrets. For a Secret with our label, the package keeps the metadata, the owners and the decoded facts. For a Secret
// without our label, it keeps only the version: a cluster may have tens of thousands of such Secrets. The name of a
// Secret is in one of these states:
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
// The two watches are not in step: a Secret whose label changes leaves one watch before or after it enters the other
// watch. While a name is IN DOUBT and neither watch has the Secret, a reader asks the API server. If the reader took
// the Secret for deleted, the certificate would be issued again. LABELLED begins when the watch decodes a Secret,
// before the Secret is in the cache. When a Secret leaves the watch, the package notes the time. At this moment
// LABELLED ends and IN DOUBT begins, so a name is never between the two states.
//
// If a Secret was read in full, or if we have just written it, the package also keeps the whole Secret. The package
// drops the whole Secret when the Secret changes or leaves its watch, and after an hour at the latest. The watch may
// lag behind our last write: internal/kube/ownwrites corrects this, and this package does not.
//
// Claims knows which Certificates name a Secret. Identity knows the user of the controller at the API server.
package secrets
