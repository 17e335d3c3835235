package native

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	awstypes "github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"chancery.dev/internal/solver/dns01/wire"
)

// awsSession is the name of our sessions with a role, as audit logs show it.
const awsSession = "cert-manager"

// route53Writer writes one record of a multivalue set for each value, told apart by
// its set identifier: no writer touches another's, and none has to read first.
type route53Writer struct {
	client *route53.Client
	zone   string
	zones  zoneIDs
}

func newRoute53(ctx context.Context, s Settings) (Writer, error) {
	config, err := awsConfig(ctx, s)
	if err != nil {
		return nil, err
	}
	return &route53Writer{client: route53.NewFromConfig(config), zone: strings.TrimPrefix(s.Variables["AWS_HOSTED_ZONE_ID"], "/hostedzone/")}, nil
}

// awsConfig makes credentials of keys, of a web identity or, if it may, of the
// machine; and assumes a role with them, if there is one.
func awsConfig(ctx context.Context, s Settings) (aws.Config, error) {
	v := s.Variables
	config := aws.Config{Region: v["AWS_REGION"], HTTPClient: client()}
	key, secret, token, role := v["AWS_ACCESS_KEY_ID"], v["AWS_SECRET_ACCESS_KEY"], v["AWS_WEB_IDENTITY_TOKEN"], v["AWS_ROLE_ARN"]
	switch {
	case token != "" && role == "":
		return config, wire.Failed(wire.ClassConfig, "route53: a service account's token is exchanged for a role's credentials: set role")
	case token == "" && (key == "") != (secret == ""):
		return config, wire.Failed(wire.ClassConfig, "route53: the access key id and the secret access key go together: set both or none")
	case token == "" && key == "" && !s.Ambient:
		return config, wire.Failed(wire.ClassConfig, "route53: there are no credentials, and this issuer may not use those of the machine: "+
			"set accessKeyID and secretAccessKeySecretRef, or auth.kubernetes")
	case token == "" && key == "":
		region := s.Getenv("AWS_REGION") // of the machine, it wins over the issuer's (spec §5.9)
		if region == "" {
			region = config.Region
		}
		loaded, err := awsconfig.LoadDefaultConfig(ctx, awsconfig.WithRegion(region))
		if err != nil {
			return config, wire.Failed(wire.ClassCredential, "route53: the machine's credentials: %w", err)
		}
		config = loaded
	}
	if config.Region == "" {
		config.Region = "us-east-1"
	}
	switch {
	case token != "":
		anonymous := config
		anonymous.Credentials = aws.AnonymousCredentials{}
		config.Credentials = aws.NewCredentialsCache(stscreds.NewWebIdentityRoleProvider(sts.NewFromConfig(anonymous), role, identityToken(token),
			func(o *stscreds.WebIdentityRoleOptions) { o.RoleSessionName = awsSession }))
		return config, nil
	case key != "":
		config.Credentials = aws.NewCredentialsCache(credentials.NewStaticCredentialsProvider(key, secret, v["AWS_SESSION_TOKEN"]))
	}
	if role != "" {
		config.Credentials = aws.NewCredentialsCache(stscreds.NewAssumeRoleProvider(sts.NewFromConfig(config), role, func(o *stscreds.AssumeRoleOptions) {
			o.RoleSessionName = awsSession
			if id := v["AWS_EXTERNAL_ID"]; id != "" {
				o.ExternalID = &id
			}
		}))
	}
	return config, nil
}

// identityToken is a token that is data.
type identityToken string

// GetIdentityToken implements stscreds.IdentityTokenRetriever.
func (t identityToken) GetIdentityToken() ([]byte, error) { return []byte(t), nil }

// hostedZone finds the public zone that the record is in: the one that DNS tells, or
// else the closest name above the record.
func (w *route53Writer) hostedZone(ctx context.Context, r wire.Record) (string, error) {
	if w.zone != "" {
		return w.zone, nil
	}
	names := []string{r.Zone}
	for name := r.FQDN; strings.Count(name, ".") > 1; _, name, _ = strings.Cut(name, ".") {
		names = append(names, name)
	}
	for _, name := range names {
		id, err := w.zones.of(name, time.Now(), func(name string) (string, error) { return w.lookUp(ctx, name) })
		if err != nil || id != "" {
			return id, err
		}
	}
	return "", fmt.Errorf("route53: the account has no public hosted zone for %s", r.FQDN)
}

// lookUp asks for the id of a zone, which is empty if the account has no public one of this name.
func (w *route53Writer) lookUp(ctx context.Context, name string) (string, error) {
	found, err := w.client.ListHostedZonesByName(ctx, &route53.ListHostedZonesByNameInput{DNSName: aws.String(name)})
	if err != nil {
		return "", fmt.Errorf("route53: looking for zone %s: %w", name, err)
	}
	i := slices.IndexFunc(found.HostedZones, func(z awstypes.HostedZone) bool {
		return aws.ToString(z.Name) == name && (z.Config == nil || !z.Config.PrivateZone)
	})
	if i < 0 {
		return "", nil
	}
	return strings.TrimPrefix(aws.ToString(found.HostedZones[i].Id), "/hostedzone/"), nil
}

func (w *route53Writer) change(ctx context.Context, action awstypes.ChangeAction, r wire.Record) error {
	zone, err := w.hostedZone(ctx, r)
	if err != nil {
		return err
	}
	value := `"` + r.Value + `"`
	// Not waited for: the self check asks the zone's servers.
	_, err = w.client.ChangeResourceRecordSets(ctx, &route53.ChangeResourceRecordSetsInput{
		HostedZoneId: &zone,
		ChangeBatch: &awstypes.ChangeBatch{
			Comment: aws.String("Managed by cert-manager"),
			Changes: []awstypes.Change{{Action: action, ResourceRecordSet: &awstypes.ResourceRecordSet{
				Name: &r.FQDN, Type: awstypes.RRTypeTxt, TTL: aws.Int64(int64(r.TTL)),
				MultiValueAnswer: aws.Bool(true), SetIdentifier: &value,
				ResourceRecords: []awstypes.ResourceRecord{{Value: &value}},
			}}},
		},
	})
	if err != nil {
		return fmt.Errorf("route53: changing TXT %s: %w", r.FQDN, err)
	}
	return nil
}

func (w *route53Writer) Present(ctx context.Context, r wire.Record) error {
	return w.change(ctx, awstypes.ChangeActionUpsert, r)
}

func (w *route53Writer) CleanUp(ctx context.Context, r wire.Record) error {
	err := w.change(ctx, awstypes.ChangeActionDelete, r)
	var gone *awstypes.InvalidChangeBatch
	if errors.As(err, &gone) {
		return nil // there is none (spec §5.9)
	}
	return err
}
