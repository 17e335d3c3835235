// Package secrets keeps in memory the parts of Secrets that decisions need. It does not keep the bodies of the
// thousands of Secrets that need no work (docs/decisions/0008-what-is-kept-of-secrets.md).
//
// The package has two watches of Secrets. Of Secrets with our label, it keeps metadata, owners and decoded facts. Of
// Secrets without our label, it keeps only the version: a cluster may have tens of thousands of such Secrets. The name
// of a Secret is in one of these states:
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
// watch. While a name is IN DOUBT and neither watch has the Secret, a reader asks the API server. The reader does not
// assume that the Secret is deleted, because then the certificate would be issued again. LABELLED begins when the watch
// decodes a Secret, before the Secret is in the cache. LABELLED ends, and IN DOUBT begins, when the package notes the
// time of leaving: a name is never between the two states.
//
// The package also keeps the body of a Secret that was read in full, or that we have just written, until the Secret
// changes or leaves its watch, for an hour at most. Our last write may be newer than the watch: internal/kube/ownwrites
// knows this, and this package does not.
package secrets
