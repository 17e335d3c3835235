package kubelet

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"reflect"
	"strconv"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// listener leads connections to an address on to another one.
type listener struct {
	target atomic.Pointer[string]
}

// listen accepts connections until ctx ends.
func listen(ctx context.Context, address, target string) (*listener, error) {
	l := &listener{}
	l.target.Store(&target)
	at, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = at.Close() })
	go func() {
		for {
			near, err := at.Accept()
			if err != nil {
				return
			}
			go l.connect(ctx, near)
		}
	}()
	return l, nil
}

func (l *listener) connect(ctx context.Context, near net.Conn) {
	far, err := (&net.Dialer{}).DialContext(ctx, "tcp", *l.target.Load())
	if err != nil {
		_ = near.Close()
		return
	}
	for _, ends := range [][2]net.Conn{{near, far}, {far, near}} {
		go func() {
			_, _ = io.Copy(ends[0], ends[1])
			_ = ends[0].Close()
		}()
	}
}

// proxy writes an EndpointSlice for each Service that selects pods, and leads from the Service's address to one of its
// pods that is ready.
func (k *Kubelet) proxy(ctx context.Context) error {
	services := &corev1.ServiceList{}
	if err := k.client.List(ctx, services); err != nil {
		return err
	}
	for _, s := range services.Items {
		if len(s.Spec.Selector) == 0 {
			continue
		}
		slice := k.slice(&s)
		if err := k.write(ctx, slice); err != nil {
			return err
		}
		if len(slice.Endpoints) == 0 {
			continue
		}
		for i, port := range s.Spec.Ports {
			address := net.JoinHostPort(s.Spec.ClusterIP, strconv.Itoa(int(port.Port)))
			target := net.JoinHostPort(slice.Endpoints[0].Addresses[0], strconv.Itoa(int(*slice.Ports[i].Port)))
			if known := k.services[address]; known != nil {
				known.target.Store(&target)
				continue
			}
			if out, err := exec.CommandContext(ctx, "ip", "addr", "replace", s.Spec.ClusterIP+"/32", "dev", "kube").CombinedOutput(); err != nil {
				return fmt.Errorf("the address of the Service %s: %w: %s", s.Name, err, out)
			}
			l, err := listen(ctx, address, target)
			if err != nil {
				return err
			}
			k.services[address] = l
		}
	}
	return nil
}

// slice is the EndpointSlice of a Service.
func (k *Kubelet) slice(s *corev1.Service) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	slice.Namespace, slice.Name, slice.Labels = s.Namespace, s.Name, map[string]string{discoveryv1.LabelServiceName: s.Name}
	for _, p := range k.pods {
		if _, ended := p.ended(); ended || !p.was || p.object.Namespace != s.Namespace || !labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(p.object.Labels)) {
			continue
		}
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{p.address}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		})
		slice.Ports = nil
		for _, port := range s.Spec.Ports {
			number := port.TargetPort.IntVal
			for _, container := range p.object.Spec.Containers {
				for _, named := range container.Ports {
					if named.Name == port.TargetPort.StrVal {
						number = named.ContainerPort
					}
				}
			}
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &port.Name, Port: &number})
		}
	}
	return slice
}

// write makes an EndpointSlice as it is to be.
func (k *Kubelet) write(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
	is := &discoveryv1.EndpointSlice{}
	err := k.client.Get(ctx, client.ObjectKeyFromObject(slice), is)
	if apierrors.IsNotFound(err) {
		return k.client.Create(ctx, slice)
	}
	if err != nil || reflect.DeepEqual(addresses(is), addresses(slice)) {
		return err
	}
	is.Endpoints, is.Ports = slice.Endpoints, slice.Ports
	return k.client.Update(ctx, is)
}

// addresses are those of an EndpointSlice.
func addresses(slice *discoveryv1.EndpointSlice) map[string]bool {
	all := map[string]bool{}
	for _, endpoint := range slice.Endpoints {
		all[endpoint.Addresses[0]] = true
	}
	return all
}
