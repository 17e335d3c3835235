package waits

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/limits"
)

const (
	// timeout bounds one question to one Pod.
	timeout = 15 * time.Second
	// maxAnswer bounds an answer, in bytes.
	maxAnswer = limits.WaitsBody
)

// Home is the namespace where the controller is by default.
const Home = "cert-manager"

const nameLabel, componentLabel = "app.kubernetes.io/name", "app.kubernetes.io/component"

// selector chooses the Pods of the controller, by chancery install and by the chart.
const selector = nameLabel + " in (chancery-controller, cert-manager)"

// SeePods is the command that shows the Pods of the controller.
const SeePods = "kubectl get pods -A -l '" + selector + "'"

// Controllers returns the running Pods of the controller in a namespace. If namespace is empty, it looks in all
// namespaces, or only in Home if the user may not list Pods in all.
func Controllers(ctx context.Context, c client.Client, namespace string) ([]corev1.Pod, error) {
	ours, err := labels.Parse(selector)
	if err != nil {
		return nil, err
	}
	named := namespace != ""
	if named {
		ours = labels.Everything() // the chart's nameOverride changes the label
	}
	pods := &corev1.PodList{}
	err = c.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: ours})
	if apierrors.IsForbidden(err) && !named {
		namespace = Home
		err = c.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: ours})
	}
	if apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("you may not list the Pods of the controller: you need the right to list pods in its namespace; "+
			"if that is not %s, name it with --controller-namespace: %w", namespace, err)
	}
	if err != nil {
		return nil, fmt.Errorf("list the Pods of the controller: %w", err)
	}
	return slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
		return pod.Status.Phase != corev1.PodRunning || !isController(pod.Labels, named)
	}), nil
}

// isController tells the Pods of chancery install, and those of the chart and of an installation that was taken over.
// named says that they are in a namespace that the user has named.
func isController(labels map[string]string, named bool) bool {
	name := labels[nameLabel]
	return name == "chancery-controller" || labels[componentLabel] == "controller" && (name == "cert-manager" || named)
}

// Get asks a Pod by HTTP, through the API server's port forwarding, and returns the status and the body. It opens no
// port on this machine.
func Get(ctx context.Context, config *rest.Config, pod client.ObjectKey, port int, path string) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	connection, err := dial(ctx, config, pod)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = connection.Close() }()
	defer context.AfterFunc(ctx, func() { _ = connection.Close() })()
	header := http.Header{}
	header.Set(corev1.PortHeader, strconv.Itoa(port))
	header.Set(corev1.PortForwardRequestIDHeader, "0")
	header.Set(corev1.StreamType, corev1.StreamTypeError)
	failures, err := connection.CreateStream(header)
	if err != nil {
		return 0, nil, err
	}
	failed := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(io.LimitReader(failures, limits.ErrorBody))
		failed <- string(text)
	}()
	header.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := connection.CreateStream(header)
	if err != nil {
		return 0, nil, err
	}
	if status, body, err = exchange(ctx, data, path); err == nil {
		return status, body, nil
	}
	select {
	case text := <-failed:
		err = causeOf(text, err)
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err())
	}
	return 0, nil, fmt.Errorf("no answer at port %d: %w", port, err)
}

// causeOf is the error that the other side has named, or else the one that was noticed here.
func causeOf(named string, noticed error) error {
	if named != "" {
		return errors.New(strings.TrimSpace(named))
	}
	return noticed
}

// exchange sends a request, and reads the answer.
func exchange(ctx context.Context, stream io.ReadWriter, path string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	req.Close = true
	if err := req.Write(stream); err != nil {
		return 0, nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(stream), req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	return answerOf(resp)
}

func answerOf(resp *http.Response) (status int, body []byte, err error) {
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		err = fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	return resp.StatusCode, body, err
}

// dial opens the API server's port forwarding to a Pod: over a WebSocket, or by SPDY where an API server or a proxy
// knows no WebSockets.
func dial(ctx context.Context, config *rest.Config, pod client.ObjectKey) (httpstream.Connection, error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	url := clients.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	dialer, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, config)
	if err != nil {
		return nil, err
	}
	dialer = portforward.NewFallbackDialerForStreaming(dialer, spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url), func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	type dialed struct {
		connection httpstream.Connection
		err        error
	}
	done := make(chan dialed, 1)
	go func() {
		connection, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
		done <- dialed{connection, err}
	}()
	select {
	case d := <-done:
		if d.err != nil && strings.Contains(d.err.Error(), "forbidden") {
			return nil, fmt.Errorf("you need the rights to get and create pods/portforward in the namespace %s: "+
				"see whether you have them with kubectl auth can-i create pods/portforward -n %[1]s: %w", pod.Namespace, d.err)
		}
		return d.connection, d.err
	case <-ctx.Done():
		go func() {
			if d := <-done; d.connection != nil {
				_ = d.connection.Close()
			}
		}()
		return nil, fmt.Errorf("no connection to Pod %s within %s: %w", pod, timeout, ctx.Err())
	}
}

// waitsAt asks what listens at a Unix socket for the list of waits.
func waitsAt(ctx context.Context, socket string) (status int, body []byte, err error) {
	connection, err := (&net.Dialer{Timeout: timeout}).DialContext(ctx, "unix", socket)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = connection.Close() }()
	if err := connection.SetDeadline(time.Now().Add(timeout)); err != nil {
		return 0, nil, err
	}
	return exchange(ctx, connection, waitsPath)
}
