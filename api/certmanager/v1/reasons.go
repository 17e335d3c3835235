package v1

// Reasons of a Certificate's conditions Ready and Issuing, and of its events (spec appendix B).
const (
	CertificateReasonReady                     = "Ready"
	CertificateReasonDoesNotExist              = "DoesNotExist"
	CertificateReasonMissingData               = "MissingData"
	CertificateReasonInvalidKeyPair            = "InvalidKeyPair"
	CertificateReasonInvalidCertificate        = "InvalidCertificate"
	CertificateReasonInvalidCertificateRequest = "InvalidCertificateRequest"
	CertificateReasonIncorrectIssuer           = "IncorrectIssuer"
	CertificateReasonIncorrectCertificate      = "IncorrectCertificate"
	CertificateReasonSecretMismatch            = "SecretMismatch"
	CertificateReasonRequestChanged            = "RequestChanged"
	CertificateReasonExpired                   = "Expired"
	CertificateReasonWindowError               = "WindowError"
	CertificateReasonRenewing                  = "Renewing"
	CertificateReasonManuallyTriggered         = "ManuallyTriggered"
	CertificateReasonRevoking                  = "Revoking"
	CertificateReasonFailed                    = "Failed"
	CertificateReasonIssued                    = "Issued"

	CertificateEventIssuing             = "Issuing"
	CertificateEventGenerated           = "Generated"
	CertificateEventReused              = "Reused"
	CertificateEventDeleted             = "Deleted"
	CertificateEventRequested           = "Requested"
	CertificateEventRequestFailed       = "RequestFailed"
	CertificateEventWaiting             = "Waiting"
	CertificateEventDecodeFailed        = "DecodeFailed"
	CertificateEventCannotRegenerateKey = "CannotRegenerateKey"
	CertificateEventKeystorePassword    = "KeystorePasswordSecretNotFound"
	CertificateEventARIError            = "ARIError"
	CertificateEventRootNotVouchedFor   = "RootNotVouchedFor"
)

// Reasons of a CertificateRequest's conditions and events (spec §3.2, §3.3).
const (
	CertificateRequestReasonPending = "Pending"
	CertificateRequestReasonIssued  = "Issued"
	CertificateRequestReasonFailed  = "Failed"
	CertificateRequestReasonDenied  = "Denied"
	// CertificateRequestReasonApproved is the reason that the built-in approver gives.
	CertificateRequestReasonApproved = "cert-manager.io"

	CertificateRequestEventWaitingForApproval = "WaitingForApproval"
	CertificateRequestEventIssuerNotFound     = "IssuerNotFound"
	CertificateRequestEventIssuerTypeMissing  = "IssuerTypeMissing"
	CertificateRequestEventIssuerNotReady     = "IssuerNotReady"
	CertificateRequestEventIssued             = "CertificateIssued"
	CertificateRequestEventDecodeError        = "DecodeError"
	CertificateRequestEventBadConfig          = "BadConfig"
)

// Reasons of an issuer's condition Ready, and of its events (spec §5.1).
const (
	IssuerReasonACMEAccountRegistered    = "ACMEAccountRegistered"
	IssuerReasonErrRegisterACMEAccount   = "ErrRegisterACMEAccount"
	IssuerReasonErrVerifyACMEAccount     = "ErrVerifyACMEAccount"
	IssuerReasonErrUpdateACMEAccount     = "ErrUpdateACMEAccount"
	IssuerReasonReplacingACMEAccountKey  = "ReplacingACMEAccountKey"
	IssuerReasonErrReplaceACMEAccountKey = "ErrReplaceACMEAccountKey"
	IssuerReasonACMEAccountKeyReplaced   = "ACMEAccountKeyReplaced"
	IssuerReasonInvalidConfig            = "InvalidConfig"
	IssuerReasonInvalidURL               = "InvalidURL"
	IssuerReasonInvalidSolver            = "InvalidSolver"
	IssuerReasonKeyPairVerified          = "KeyPairVerified"
	IssuerReasonErrGetKeyPair            = "ErrGetKeyPair"
	IssuerReasonErrInvalidKeyPair        = "ErrInvalidKeyPair"
	IssuerReasonIsReady                  = "IsReady"
	IssuerReasonVaultVerified            = "VaultVerified"
	IssuerReasonVaultError               = "VaultError"
	IssuerReasonVenafiReady              = "Certificate Manager issuer started"
	IssuerReasonVenafiAuthenticateFailed = "AuthFailed"
	IssuerReasonVenafiErrorSetup         = "ErrorSetup"
	IssuerReasonErrInitIssuer            = "ErrInitIssuer"
)
