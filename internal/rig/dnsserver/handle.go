package dnsserver

import (
	"errors"

	"github.com/miekg/dns"
)

// maxCNAMEs bounds the chain of CNAMEs that one answer follows.
const maxCNAMEs = 10

func (s *Server) handle(inst *instance, w dns.ResponseWriter, r *dns.Msg) {
	defer s.begin()()
	m := s.answer(inst, w, r)
	if m == nil {
		return
	}
	size := dns.MinMsgSize
	if opt := r.IsEdns0(); opt != nil {
		size = max(size, int(opt.UDPSize()))
		m.SetEdns0(dns.DefaultMsgSize, false)
	}
	if w.LocalAddr().Network() == "udp" && r.Opcode == dns.OpcodeQuery {
		m.Truncate(size)
	}
	sign(m, w, r)
	// A client that is gone does not want the answer.
	_ = w.WriteMsg(m)
}

// answer returns the answer of one server, or nil for none.
func (s *Server) answer(inst *instance, w dns.ResponseWriter, r *dns.Msg) *dns.Msg {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := new(dns.Msg).SetReply(r)
	isUpdate := r.Opcode == dns.OpcodeUpdate
	if isUpdate {
		inst.counts[dns.TypeNone]++
	} else {
		inst.counts[r.Question[0].Qtype]++
	}
	switch inst.mode {
	case Silent:
		return nil
	case Refused:
		m.Rcode = dns.RcodeRefused
		return m
	case ServFail:
		m.Rcode = dns.RcodeServerFailure
		return m
	case NXDomain:
		if r.Question[0].Qtype == dns.TypeTXT {
			m.Rcode = dns.RcodeNameError
			return m
		}
	case Referral:
		return m
	case Truncated:
		if w.LocalAddr().Network() == "udp" {
			m.Truncated = true
			return m
		}
	case Normal:
	}
	switch {
	case isUpdate:
		m.Rcode = s.update(inst, w, r)
	case r.Opcode == dns.OpcodeQuery:
		s.resolve(inst, m, r.Question[0])
	default:
		m.Rcode = dns.RcodeNotImplemented
	}
	return m
}

// resolve fills in the answer to a query, along CNAMEs (RFC 1034 §4.3.2).
func (s *Server) resolve(inst *instance, m *dns.Msg, q dns.Question) {
	m.RecursionAvailable = true
	s.replicate(inst)
	name := dns.CanonicalName(q.Name)
	for range maxCNAMEs {
		z := s.zoneOf(name)
		if z == nil {
			m.Rcode = dns.RcodeNameError
			if name == "." {
				m.Rcode = dns.RcodeSuccess
			}
			return
		}
		if z.failing {
			m.Rcode, m.Answer = dns.RcodeServerFailure, nil
			return
		}
		m.Authoritative = true
		rrs, exists := s.lookup(inst, z, name, q.Qtype)
		m.Answer = append(m.Answer, rrs...)
		if len(rrs) == 0 {
			m.Ns = append(m.Ns, z.soa(inst))
			if !exists {
				m.Rcode = dns.RcodeNameError
			}
			return
		}
		alias, ok := rrs[0].(*dns.CNAME)
		if !ok || q.Qtype == dns.TypeCNAME || q.Qtype == dns.TypeANY {
			return
		}
		name = dns.CanonicalName(alias.Target)
	}
}

// sign prepares the TSIG of an answer to a signed request (RFC 8945 §5.3).
func sign(m *dns.Msg, w dns.ResponseWriter, r *dns.Msg) {
	t := r.IsTsig()
	if t == nil {
		return
	}
	m.SetTsig(t.Hdr.Name, t.Algorithm, 300, int64(t.TimeSigned))
	reply := m.IsTsig()
	switch err := w.TsigStatus(); {
	case err == nil:
	case errors.Is(err, dns.ErrSecret), errors.Is(err, dns.ErrKeyAlg):
		reply.Error = dns.RcodeBadKey
	case errors.Is(err, dns.ErrTime):
		reply.Error = dns.RcodeBadTime
	default:
		reply.Error = dns.RcodeBadSig
	}
}

// update applies an update message and returns the response code (RFC 2136 §3).
func (s *Server) update(inst *instance, w dns.ResponseWriter, r *dns.Msg) int {
	switch {
	case r.IsTsig() != nil && s.hasKey && w.TsigStatus() != nil:
		return dns.RcodeNotAuth
	case s.hasKey && r.IsTsig() == nil, inst != s.servers[0]:
		return dns.RcodeRefused
	case len(r.Answer) > 0:
		return dns.RcodeNotImplemented
	}
	name := dns.CanonicalName(r.Question[0].Name)
	z := s.zoneOf(name)
	if z == nil || z.name != name {
		return dns.RcodeNotAuth
	}
	if z.forbidden {
		return dns.RcodeRefused
	}
	changes := make([]update, 0, len(r.Ns))
	for _, rr := range r.Ns {
		if s.zoneOf(dns.CanonicalName(rr.Header().Name)) != z {
			return dns.RcodeNotZone
		}
		u, ok := change(rr)
		if !ok {
			return dns.RcodeFormatError
		}
		if u.remove == nil && z.isAlias(rr.Header().Name) {
			continue // beside a CNAME there is nothing else, and an update that adds something is ignored (RFC 2136 §3.4.2.2)
		}
		u.at, u.zone, u.serial = s.now(), z, z.serial+1
		changes = append(changes, u)
	}
	s.updates = append(s.updates, changes...)
	z.serial++
	s.replicate(inst)
	return dns.RcodeSuccess
}

// change reads one record of an update section (RFC 2136 §3.4.2).
func change(rr dns.RR) (update, bool) {
	h := *rr.Header()
	name := dns.CanonicalName(h.Name)
	switch h.Class {
	case dns.ClassINET:
		return update{rr: rr}, true
	case dns.ClassNONE:
		one := dns.Copy(rr)
		one.Header().Class = dns.ClassINET
		want := keyOf(one)
		return update{remove: func(k rrKey) bool { return k == want }}, true
	case dns.ClassANY:
		return update{remove: func(k rrKey) bool {
			return k.name == name && (h.Rrtype == dns.TypeANY || k.rtype == h.Rrtype)
		}}, true
	}
	return update{}, false
}
