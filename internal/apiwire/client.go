package apiwire

import (
	"context"
	"reflect"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NewClient is a client.NewClientFunc: client.New, but for how the answers to writes of our
// kinds are read: without managed fields.
func NewClient(config *rest.Config, opts client.Options) (client.Client, error) {
	usual, err := client.New(config, opts)
	if err != nil {
		return nil, err
	}
	return &writer{Client: usual, connection: newConnection(config, opts.HTTPClient, usual.Scheme())}, nil
}

// writer is a client.Client.
type writer struct {
	client.Client
	*connection
}

// Create implements client.Writer.
func (w *writer) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	k, ours := kindOf(obj)
	if !ours {
		return w.Client.Create(ctx, obj, opts...)
	}
	api, err := w.of(k)
	if err != nil {
		return err
	}
	var o client.CreateOptions
	o.ApplyOptions(opts)
	return w.send(ctx, api.Post().Body(obj).VersionedParams(o.AsCreateOptions(), w.params), obj, k)
}

// Patch implements client.Writer.
func (w *writer) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	k, ours := kindOf(obj)
	if !ours {
		return w.Client.Patch(ctx, obj, patch, opts...)
	}
	var o client.PatchOptions
	o.ApplyOptions(opts)
	return w.patch(ctx, obj, k, patch, &o)
}

// Status implements client.StatusClient.
func (w *writer) Status() client.SubResourceWriter { return statusWriter{w.Client.Status(), w} }

type statusWriter struct {
	client.SubResourceWriter

	w *writer
}

// Patch implements client.SubResourceWriter.
func (s statusWriter) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	var o client.SubResourcePatchOptions
	o.ApplyOptions(opts)
	k, ours := kindOf(obj)
	if !ours || o.SubResourceBody != nil {
		return s.SubResourceWriter.Patch(ctx, obj, patch, opts...)
	}
	return s.w.patch(ctx, obj, k, patch, &o.PatchOptions, "status")
}

func (w *writer) patch(ctx context.Context, obj client.Object, k kind, patch client.Patch, o *client.PatchOptions, subresource ...string) error {
	api, err := w.of(k)
	if err != nil {
		return err
	}
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	req := api.Patch(patch.Type()).Name(obj.GetName()).SubResource(subresource...).Body(data).VersionedParams(o.AsPatchOptions(), w.params)
	return w.send(ctx, req, obj, k)
}

// send sends a write of obj, and fills obj with the answer.
func (w *writer) send(ctx context.Context, req *rest.Request, obj client.Object, k kind) error {
	body, err := answer(req.NamespaceIfScoped(obj.GetNamespace(), k.namespaced).Resource(k.resource).Do(ctx))
	if err != nil {
		return err
	}
	reflect.ValueOf(obj).Elem().SetZero()
	return decode(body, obj, k)
}
