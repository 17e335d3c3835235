package accounts

import (
	"context"

	"chancery.dev/internal/acme"
)

// OffersRenewalInfo reports whether the CA offers renewal information (RFC 9773). It sends nothing: it reads the
// directory that was fetched last, and returns true if there is none.
func (a *Account) OffersRenewalInfo() bool {
	directory := a.current().KnownDirectory()
	return directory == nil || directory.RenewalInfo != ""
}

// RenewalInfo asks the CA when to renew the certificate with the ID (RFC 9773 §4.1). It returns nil if the CA offers no
// such information. Its error is a fault, which does not park the account: the request is not signed, so the failure
// says nothing about orders.
func (a *Account) RenewalInfo(ctx context.Context, certID string) (*acme.RenewalInfo, error) {
	c := a.current()
	directory, err := c.Directory(ctx)
	if err == nil && directory.RenewalInfo == "" {
		return nil, nil //nolint:nilnil // as it says
	}
	var info *acme.RenewalInfo
	if err == nil {
		info, err = c.RenewalInfo(ctx, certID)
	}
	if err != nil {
		return nil, faultOf(err)
	}
	return info, nil
}
