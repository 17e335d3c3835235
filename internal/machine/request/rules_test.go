package request

import (
	"testing"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
)

// eachState visits the product of everything that a State can say.
func eachState(visit func(State)) {
	booleans := []func(*State, bool){
		func(s *State, v bool) { s.Deleted = v }, func(s *State, v bool) { s.Denied = v }, func(s *State, v bool) { s.Failed = v },
		func(s *State, v bool) { s.Issued = v }, func(s *State, v bool) { s.Invalid = v }, func(s *State, v bool) { s.DeniedSaid = v },
		func(s *State, v bool) { s.Approved = v }, func(s *State, v bool) { s.WantsCA = v },
		func(s *State, v bool) {
			if v {
				s.Machine = GroupNodes
			}
		},
		func(s *State, v bool) {
			if v {
				s.Problem = fault.Terminal("InvalidDuration", "too short")
			}
		},
	}
	for form := Form(0); form <= FormCSRClusterIssuer+1; form++ {
		for approver := Approver(0); approver <= ApproveAuthorized+1; approver++ {
			for issuer := IssuerState(0); issuer <= IssuerReady+1; issuer++ {
				for _, may := range []*bool{nil, new(false), new(true)} {
					for bits := range 1 << len(booleans) {
						s := State{Form: form, Approver: approver, Issuer: issuer, MayReference: may, IssuerName: "x"}
						for i, set := range booleans {
							set(&s, bits>>i&1 == 1)
						}
						visit(s)
						if Decide(s).Step != StepSign {
							continue
						}
						for _, o := range orders() {
							s.Order = &o.order
							visit(s)
						}
					}
				}
			}
		}
	}
}

// TestInvariants says what must hold of every decision, whatever the state.
func TestInvariants(t *testing.T) {
	failures := 0
	expect := func(ok bool, s State, a Action, what string) {
		if !ok && failures < 20 {
			failures++
			t.Errorf("%s: %+v leads to %+v", what, s, a)
		}
	}
	eachState(func(s State) {
		a := Decide(s)
		expect(a.Step >= StepIgnore && a.Step <= StepIssue, s, a, "an unknown step")
		expect(a.Step != StepFail && a.Step != StepDeny || a.Reason != "" && a.Message != "", s, a, "ends without saying why")
		if s.Deleted || s.Issued || s.Failed {
			expect(a == Action{Step: StepIgnore}, s, a, "what has ended is touched")
		}
		if s.Denied || s.Invalid {
			expect(!a.Approve && a.Step != StepSign && a.Step != StepFail, s, a, "what others have refused is approved, signed or failed")
		}
		expect(!a.Approve || !s.Approved, s, a, "approved twice")
		expect(!a.Approve || s.Approver == ApproveAuto || s.Approver == ApproveAuthorized, s, a, "approved without being the approver")
		expect(a.Step != StepSign || s.Approved || a.Approve, s, a, "signed without approval")
		expect(a.Step != StepOrder || s.Approved, s, a, "ordered before the approval is stored")
		expect(s.Order == nil || a.Step != StepSign, s, a, "signed beside the Order")
		expect(s.Order != nil || a.Step < StepOrder && !a.Retry && a.Wake.IsZero(), s, a, "an Order where there is none")
		if o := s.Order; o != nil && (a.Step == StepDeleteOrder || a.Step == StepIssue) {
			expect(o.Found != nil && !o.Foreign && (a.Step == StepIssue) == (o.Wrong == nil), s, a, "a wrong certificate, or somebody else's")
		}
		expect(a.Step != StepSign || s.Issuer == IssuerReady, s, a, "signed by an issuer that is not ready")
		expect(a.Step != StepSign || s.Problem == nil, s, a, "signed though it has a problem")
		expect(a.Step != StepSign || s.Form != FormCSRIssuer || s.MayReference != nil && *s.MayReference, s, a, "signed by an Issuer that the requester may not reference")
		expect(s.Machine == "" || s.Approved || s.Form == FormCertificateRequest || a.Step == StepWait || a.Step == StepIgnore, s, a, "a machine's request does not wait for consent")
		expect(a.Step != StepAuthorize || s.MayReference == nil, s, a, "asked twice")
		expect(!a.Approve || a.Step != StepIgnore && a.Step != StepAuthorize, s, a, "an approval that nobody carries out")
		expect(s.Form != FormCertificateRequest || a.Step != StepAuthorize, s, a, "a CertificateRequest is authorized by its creation")
	})
}

func csr(issuer IssuerState) State {
	return State{Form: FormCSR, Approver: ApproveAuto, Issuer: issuer, IssuerName: `ClusterIssuer "ca"`}
}

// Mission rule 8, sentence by sentence: a CertificateSigningRequest for
// cert-manager.io/<ClusterIssuer>.
func TestRule8_CertificateSigningRequests(t *testing.T) {
	for _, c := range []struct {
		rule  string
		state State
		want  Action
	}{
		{"the controller manages the type and the issuer is ready: it approves and signs", csr(IssuerReady), Action{Step: StepSign, Approve: true}},
		{"the type is not its own: it does nothing", csr(IssuerUnmanaged), Action{Step: StepIgnore}},
		{"it has no type that is known: it does nothing", csr(IssuerTypeless), Action{Step: StepIgnore}},
		{"it belongs to another controller: it does nothing", csr(IssuerForeign), Action{Step: StepIgnore}},
		{"whether it is ready is not known yet: it waits", csr(IssuerUnknown), Action{Step: StepWait}},
	} {
		if got := Decide(c.state); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.rule, got, c.want)
		}
	}
	for _, c := range []struct {
		rule   string
		state  State
		step   Step
		reason string
	}{
		{"it does not exist: Failed", csr(IssuerMissing), StepFail, ReasonIssuerNotFound},
		{"it is not ready: Failed", csr(IssuerNotReady), StepFail, ReasonIssuerNotReady},
		{"others approve, and have not yet: it waits", with(csr(IssuerReady), func(s *State) { s.Approver = ApproveExternal }), StepWait, ReasonWaitingForApproval},
		{"others approve, and have: it signs", with(csr(IssuerReady), func(s *State) { s.Approver, s.Approved = ApproveExternal, true }), StepSign, ""},
		{"authorized: it asks", with(csr(IssuerReady), func(s *State) { s.Approver = ApproveAuthorized }), StepAuthorize, ""},
		{"authorized, and allowed: it signs", with(csr(IssuerReady), func(s *State) { s.Approver, s.MayReference = ApproveAuthorized, new(true) }), StepSign, ""},
		{"authorized, and not allowed: Failed", with(csr(IssuerReady), func(s *State) { s.Approver, s.MayReference = ApproveAuthorized, new(false) }), StepFail, ReasonDeniedReference},
		{"a node asks: it waits for consent", with(csr(IssuerReady), func(s *State) { s.Machine = GroupNodes }), StepWait, ReasonWaitingForConsent},
		{"a node asks, the issuer is not ready: it waits", with(csr(IssuerNotReady), func(s *State) { s.Machine = GroupNodes }), StepWait, ReasonWaitingForConsent},
		{"a node asks, others approve anyway: it waits", with(csr(IssuerReady), func(s *State) { s.Machine, s.Approver = GroupNodes, ApproveExternal }), StepWait, ReasonWaitingForApproval},
		{"a node asks, and somebody has consented: it signs", with(csr(IssuerReady), func(s *State) { s.Machine, s.Approved = GroupNodes, true }), StepSign, ""},
		{"a CA certificate: it asks whoever approves", with(csr(IssuerReady), func(s *State) { s.WantsCA = true }), StepAuthorize, ""},
		{"a CA certificate, not allowed: Failed", with(csr(IssuerReady), func(s *State) { s.WantsCA, s.MayReference = true, new(false) }), StepFail, ReasonDeniedReference},
		{"a CA certificate that others approved: it signs", with(csr(IssuerReady), func(s *State) { s.WantsCA, s.Approved = true, true }), StepSign, ""},
		{"already signed, the issuer is gone: it does not fail", with(csr(IssuerMissing), func(s *State) { s.Issued = true }), StepIgnore, ""},
		{"denied: it does nothing", with(csr(IssuerReady), func(s *State) { s.Denied = true }), StepIgnore, ""},
		{"who approves is not set: it waits", with(csr(IssuerReady), func(s *State) { s.Approver = 0 }), StepWait, ReasonWaitingForApproval},
		{"an Issuer's state is not told to whoever may not reference it", with(csr(IssuerNotReady), func(s *State) {
			s.Form, s.Approver, s.Approved, s.MayReference = FormCSRIssuer, ApproveExternal, true, new(false)
		}), StepFail, ReasonDeniedReference},
		{"cert-manager's own form, missing issuer: it waits", with(csr(IssuerMissing), func(s *State) { s.Form, s.Approved = FormCSRClusterIssuer, true }), StepWait, ReasonIssuerNotFound},
	} {
		if got := Decide(c.state); got.Step != c.step || got.Reason != c.reason {
			t.Errorf("%s: got %+v, want %s %s", c.rule, got, c.step, c.reason)
		}
	}
}

func with(s State, change func(*State)) State {
	change(&s)
	return s
}

// The built-in approver approves every CertificateRequest, whatever signs it (spec §3.2).
func TestApproverApprovesForEveryIssuer(t *testing.T) {
	for _, issuer := range issuerStates() {
		s := State{Form: FormCertificateRequest, Approver: ApproveAuto, Issuer: issuer}
		if a := Decide(s); !a.Approve || a.Step == StepIgnore {
			t.Errorf("%s: %+v", issuerName(issuer), a)
		}
		s.Approver = ApproveExternal
		if a := Decide(s); a.Approve || a.Step != StepWait && issuer != IssuerForeign && issuer != IssuerUnmanaged {
			t.Errorf("%s, approved by others: %+v", issuerName(issuer), a)
		}
	}
}

func TestDenialIsAcknowledgedThoughInvalid(t *testing.T) {
	s := State{Form: FormCertificateRequest, Approver: ApproveAuto, Issuer: IssuerReady, Denied: true, Invalid: true}
	if a := Decide(s); a.Step != StepDeny {
		t.Errorf("got %+v, want deny (spec §3.3: 2 before 3)", a)
	}
}

func TestRule8_SignerNames(t *testing.T) {
	for name, want := range map[string]SignerName{
		"cert-manager.io/ca":                    {FormCSR, "", "ca"},
		"cert-manager.io/a.b":                   {FormCSR, "", "a.b"},
		"clusterissuers.cert-manager.io/a.b":    {FormCSRClusterIssuer, "", "a.b"},
		"issuers.cert-manager.io/ns.a":          {FormCSRIssuer, "ns", "a"},
		"issuers.cert-manager.io/ns.a.b":        {FormCSRIssuer, "ns", "a.b"},
		"issuers.cert-manager.io/a":             {FormCSRIssuer, "", "a"},
		"issuers.cert-manager.io/.a":            {FormCSRIssuer, "", "a"},
		"cert-manager.io/":                      {},
		"cert-manager.io":                       {},
		"":                                      {},
		"/ca":                                   {},
		"orders.cert-manager.io/ca":             {},
		"issuers.example.com/ns.a":              {},
		"x.issuers.cert-manager.io/ns.a":        {},
		"kubernetes.io/kube-apiserver-client":   {},
		"issuers.acme.cert-manager.io/ns.a":     {},
		"CERT-MANAGER.io/ca":                    {},
		"clusterissuers.cert-manager.io/a/b":    {FormCSRClusterIssuer, "", "a/b"},
		"clusterissuers.cert-manager.io.evil/a": {},
	} {
		got, ok := ParseSignerName(name)
		if got != want || ok != (want != SignerName{}) {
			t.Errorf("%q: %+v %t, want %+v", name, got, ok, want)
		}
	}
	for form, kind := range map[Form]string{FormCSR: "ClusterIssuer", FormCSRClusterIssuer: "ClusterIssuer", FormCSRIssuer: "Issuer"} {
		want := cmmeta.IssuerReference{Name: "a", Kind: kind, Group: "cert-manager.io"}
		if got := (SignerName{Form: form, Name: "a"}).Reference(); got != want {
			t.Errorf("%s: %+v", formName(form), got)
		}
	}
}

func TestMachineGroup(t *testing.T) {
	token := []string{"system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token", "system:authenticated"}
	for _, c := range []struct {
		groups, trusted []string
		want            string
	}{
		{[]string{"system:authenticated"}, nil, ""},
		{[]string{"system:nodes", "system:authenticated"}, nil, "system:nodes"},
		{[]string{"system:nodes"}, []string{"system:nodes"}, ""},
		{[]string{"system:nodes"}, []string{"system:bootstrappers"}, "system:nodes"},
		{append(token, "system:nodes"), []string{"system:nodes"}, "system:bootstrappers"},
		{append(token, "system:nodes"), []string{"system:bootstrappers"}, "system:nodes"},
		{token, nil, "system:bootstrappers"},
		{token, []string{"system:nodes"}, "system:bootstrappers"},
		{token, []string{"system:bootstrappers"}, ""},
		{token, token[1:2], ""},
		{token, []string{"system:bootstrappers:other"}, "system:bootstrappers"},
		{[]string{"system:bootstrappers:other"}, nil, "system:bootstrappers"},
		{[]string{"system:bootstrapperslike", "system:nodes:like"}, nil, ""},
	} {
		if got := MachineGroup(c.groups, c.trusted); got != c.want {
			t.Errorf("%q, where %q are trusted: %q, want %q", c.groups, c.trusted, got, c.want)
		}
	}
}

func TestCSRAnnotations(t *testing.T) {
	got := CSRAnnotationsOf(map[string]string{
		certmanagerv1.CSRIsCAAnnotation: "true", certmanagerv1.CSRPrivateKeyAnnotation: "mine", certmanagerv1.PrivateKeySecretNameAnnotation: "other",
	})
	if !got.IsCA || got.PrivateKeySecretName != "mine" {
		t.Errorf("got %+v", got)
	}
	for _, v := range []string{"", "True", "1", "yes", "false"} {
		if CSRAnnotationsOf(map[string]string{certmanagerv1.CSRIsCAAnnotation: v}).IsCA {
			t.Errorf("%q asks for a CA certificate", v)
		}
	}
	if got := CSRAnnotationsOf(map[string]string{certmanagerv1.PrivateKeySecretNameAnnotation: "other"}); got.PrivateKeySecretName != "other" {
		t.Errorf("got %+v", got)
	}
}

func TestCSRDuration(t *testing.T) {
	for _, c := range []struct {
		annotation string
		seconds    *int32
		want       time.Duration
		reason     string
	}{
		{"", nil, 0, ""},
		{"", new(int32(600)), 10 * time.Minute, ""},
		{"", new(int32(599)), 0, "InvalidDuration"},
		{"", new(int32(-1)), 0, "InvalidDuration"},
		{"1h", new(int32(600)), 10 * time.Minute, ""},
		{"1h", new(int32(7200)), time.Hour, ""},
		{"1h", new(int32(1)), 0, "InvalidDuration"},
		{"10m", nil, 10 * time.Minute, ""},
		{"9m59s", new(int32(7200)), 0, "InvalidDuration"},
		{"-1h", nil, 0, "InvalidDuration"},
		{"90d", nil, 0, "ErrorParseDuration"},
		{" 1h", nil, 0, "ErrorParseDuration"},
	} {
		annotations := map[string]string{}
		if c.annotation != "" {
			annotations[certmanagerv1.CSRDurationAnnotation] = c.annotation
		}
		got, err := CSRAnnotationsOf(annotations).Duration(c.seconds)
		if f := fault.Of(err); (f != nil) != (c.reason != "") || f != nil && (f.Reason != c.reason || f.Kind != fault.KindTerminal) {
			t.Errorf("%+v: error %v", c, err)
		}
		if got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestStepNames(t *testing.T) {
	if StepSign.String() != "sign" || Step(0).String() != "step(0)" || Step(99).String() != "step(99)" {
		t.Error(StepSign, Step(0), Step(99))
	}
}
