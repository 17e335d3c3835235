package dashboard

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/clientside/explain"
	"chancery.dev/internal/clientside/inventory"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/podrequest"
	"chancery.dev/internal/metrics"
	"chancery.dev/internal/rig/growth"
	"chancery.dev/internal/rig/slow"
)

func pages(t *testing.T, objects ...client.Object) *site {
	t.Helper()
	b := &board{seen: time.Now()}
	for _, o := range objects {
		b.objects = append(b.objects, metav1.Object(o))
	}
	return newSite(b)
}

func get(t *testing.T, h http.Handler, path string) (code int, text string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

// TestPages: the filters, the pages of a table, and who waits for what.
func TestPages(t *testing.T) {
	t.Parallel()
	s := pages(t, scene(t)...)
	for path, want := range map[string][]string{
		"/":                              {"88 of 88 Certificates", ">bank/sealed<", `href="/?page=2"`, "has expired, and no controller has looked at it since", ">as of <", `<td class="expires">no certificate</td>`},
		"/?page=2":                       {"Page 2 of 2", `href="/?page=1"`},
		"/?page=99":                      {"Page 2 of 2"},
		"/?q=namespace:shop":             {"28 of 88", `value="namespace:shop"`, `href="/?q=state%3Afailing&#43;namespace%3Ashop"`},
		"/?q=issuer:clusterissuer/vault": {"1 of 88", ">bank/sealed<"},
		"/?q=Credential":                 {"1 of 88", ">shop/web<"},
		"/?q=imap.mail.example.com":      {"1 of 88", ">mail/all-mail<"},
		"/?q=state:expired+bank":         {"3 of 88", `href="/?q=bank" aria-current="true"`, ">CA expired<", "above this certificate expired on"},
		"/?q=state:late&page=1":          {"2 of 88", ">CA expires soon<", ">expires before renewal<", ">bank/api<", "the CA wants fewer requests"},
		"/?q=%3Cnone%3E":                 {"0 of 88", "No Certificate is found by “&lt;none&gt;”", `href="/"`},
		"/issuers":                       {"6 issuers", ">ClusterIssuer nobody<", "does not exist", "permission denied", `href="/?q=issuer%3Aclusterissuer%2Fletsencrypt">80<`, ">CA expires soon<", "Next try: as soon as the Secret has another CA"},
		"/queue":                         {"3 Challenges under way", "pending, processing", "pending, queued", "a free slot", "its proof to be seen", `href="/certificate/shop/web"`, "90s"},
		"/certificate/bank/api":          {">next try</span>", "the last of 3 in a row", `kubectl get certificate <span class="nb">-n</span> bank api <span class="nb">-o</span> yaml`, `<li aria-current="time">`, "<h2>1 host</h2>"},
		"/certificate/shop/web": {"Order shop/web-1-1:", "Challenge web.example.com by DNS-01:", "<dt>what to do</dt>", "<dt>state</dt><dd>issuing: web.example.com: the credential was refused",
			`data-news="Certificate shop/web: issuing"`, "CertificateRequest web-1: pending", "There is no certificate yet"},
	} {
		code, text := get(t, s, path)
		if code != http.StatusOK {
			t.Errorf("%s: %d", path, code)
		}
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("%s lacks %s:\n%s", path, part, text)
			}
		}
	}
	for _, path := range []string{"/certificate/shop/none", "/none", "/page/frame.html"} {
		if code, text := get(t, s, path); code != http.StatusNotFound || !strings.Contains(text, "no such") {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	s.board.fail(errors.New("<b>gone</b>"), time.Now())
	s.board.unread = map[string]bool{"ClusterIssuer": true, "Challenge": true}
	for path, want := range map[string]string{"/": "API server cannot be read: &lt;b&gt;gone", "/issuers": "may not read all", "/queue": "may not read Challenges"} {
		if _, text := get(t, s, path); !strings.Contains(text, want) {
			t.Errorf("%s lacks %s:\n%s", path, want, text)
		}
	}
	i, err := inventory.Read(t.Context(), cluster(t, scene(t)...), inventory.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	s.board.put(i, false)
	if _, text := get(t, s, "/"); strings.Contains(text, "cannot be read") {
		t.Error("the page says that the API server cannot be read, though it can again")
	}
}

// TestPods: requests of Pods are counted for each issuer, and those in trouble are one row for each cause and issuer. A
// change is seen.
func TestPods(t *testing.T) {
	t.Parallel()
	objects := []client.Object{authority("pods", 400)}
	for i := range 300 {
		objects = append(objects, podRequest(fmt.Sprintf("web-%03d", i), "pods", "", fmt.Sprintf("the ServiceAccount web of shop/web-%03d may not have certificates", i))...)
	}
	objects = append(objects, podRequest("denied", "pods", "Denied", "the kind of key is <unknown>")...)
	objects = append(objects, podRequest("well", "pods", "Issued", "")...)
	fresh := podRequest("new", "pods", "", "")[0]
	fresh.SetCreationTimestamp(metav1.Now())
	objects = append(objects, fresh)
	objects = append(objects, podRequest("lost", "nowhere", "", "")...)
	c := cluster(t, objects...)
	b, err := follow(t.Context(), Options{Client: c})
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(b)
	_, text := get(t, s, "/pods")
	for _, want := range []string{
		`Pods <small>304, <span class="bad">302 ✗`, "304 requests for certificates of Pods, 302 in trouble", ">SignerForbidden<", ">300 requests<", "For example:", "shop/web-000, ", " more</p>",
		"Give the ServiceAccount the right", ">1 request<", "UnsupportedKeyType: the kind of key is &lt;unknown&gt;", "Correct the volume of the Pod", "ClusterIssuer nowhere does not exist",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("/pods lacks %s:\n%s", want, text)
		}
	}
	if rows := strings.Count(text, `<tr class="failing">`); rows != 3 {
		t.Errorf("%d rows", rows)
	}
	if _, text := get(t, s, "/issuers"); !strings.Contains(text, `<td class="requests">303, <a class="bad" href="/pods">301 in trouble</a>`) || !strings.Contains(text, ">ClusterIssuer nowhere<") {
		t.Errorf("/issuers:\n%s", text)
	}
	if err := c.Delete(t.Context(), podRequest("denied", "pods", "", "")[0]); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute) // as rig.Patience
	defer stop()
	for text = ""; !strings.Contains(text, "303 requests for certificates of Pods, 301 in trouble"); _, text = get(t, s, "/pods") {
		select {
		case <-ctx.Done():
			t.Fatalf("the change is not seen:\n%s", text)
		case <-time.After(20 * time.Millisecond):
		}
	}
	for kind, says := range map[string]string{"PodCertificateRequest": "You may not read the requests", "Event": "You may not read <code>events</code>"} {
		b.mu.Lock()
		b.unread, b.last = map[string]bool{kind: true}, nil
		b.mu.Unlock()
		if _, text := get(t, s, "/pods"); !strings.Contains(text, says) {
			t.Errorf("/pods without a right:\n%s", text)
		}
	}
	if _, text := get(t, pages(t, scene(t)...), "/"); strings.Contains(text, `href="/pods"`) {
		t.Error("a cluster without requests of Pods has a page for them")
	}
}

// TestPodsOfStrangers: neither an event that somebody has written, nor a request of a Pod of another namespace says
// anything about an issuer; an event about another volume, or of another namespace, says nothing of a request.
func TestPodsOfStrangers(t *testing.T) {
	t.Parallel()
	forged, foreign := podRequest("forged", "good", "", "missing"), podRequest("foreign", "x", "Denied", "of another namespace")
	forged[1].(*corev1.Event).Reason = podrequest.ReasonIssuerMissing
	foreign[0].(*certificatesv1.PodCertificateRequest).Spec.SignerName = "issuers.cert-manager.io/bank.ca"
	volume, elsewhere := podRequest("volume", "good", "", "of the other volume"), podRequest("elsewhere", "good", "", "the true words")
	volume[1].(*corev1.Event).InvolvedObject.FieldPath = podrequest.FieldPath("cert-manager.io/other")
	more := elsewhere[1].DeepCopyObject().(*corev1.Event)
	more.Namespace, more.Message = "bank", "of the other namespace"
	s := pages(t, append(slices.Concat(forged, foreign, volume, elsewhere), more, authority("good", 400))...)
	_, text := get(t, s, "/issuers")
	if !strings.Contains(text, "1 issuer,") || strings.Contains(text, "missing") || !strings.Contains(text, ">ready<") {
		t.Errorf("/issuers:\n%s", text)
	}
	_, text = get(t, s, "/pods")
	if !strings.Contains(text, "4 requests") || !strings.Contains(text, "the true words") || strings.Contains(text, "of the other") || strings.Contains(text, "does not exist") {
		t.Errorf("/pods:\n%s", text)
	}
}

// TestManyPods: the page about requests of Pods stays small, whatever their issuers are called and whatever was said of
// them, and what it costs grows with the number of requests.
func TestManyPods(t *testing.T) {
	requests := func(n int) (all []client.Object) {
		for i := range n {
			name := fmt.Sprintf("%s%05d", strings.Repeat(long, 4)[:248], i)
			all = append(all, podRequest(name, fmt.Sprintf("%s%05d", name[:240], i%500), "Denied", fmt.Sprint(i%7, strings.Repeat(`"&<é`, 2000)))...)
		}
		return all
	}
	s := pages(t, requests(5000)...)
	if code, text := get(t, s, "/pods"); code != http.StatusOK || len(text) > 200<<10 || strings.Count(text, `<tr class="failing">`) != pageRows {
		t.Errorf("%d: %d bytes", code, len(text))
	}
	growth.Linear(t, 4000, func(n int) func() {
		all := requests(n)
		return func() { get(t, pages(t, all...), "/pods") }
	})
}

// TestNumbers: the tiles say what the metrics and the reports of status say, and each leads to as many rows.
func TestNumbers(t *testing.T) {
	t.Parallel()
	objects := scene(t)
	c := cluster(t, objects...)
	own := func() (metrics.Objects, bool) { return metrics.Objects{Reader: c, ClusterIssuers: true}, true }
	controller := &metrics.Controller{Objects: own, Leads: func() bool { return true }, Now: time.Now}
	_, told := get(t, metrics.Handler(prometheus.NewRegistry(), controller, logr.Discard()), "/metrics")
	s := pages(t, objects...)
	var all []metav1.Object
	for _, o := range objects {
		all = append(all, o)
	}
	world, counts := explain.NewCluster(all, nil, time.Now()), map[string]int{}
	for _, o := range objects {
		if crt, is := o.(*certmanagerv1.Certificate); is {
			counts[string(world.Certificate(crt).Health)]++
		}
	}
	_, first := get(t, s, "/")
	tiles := regexp.MustCompile(`class="tile (\w+)" href="([^"]+)"><b>(\d+)</b>`).FindAllStringSubmatch(first, -1)
	if len(tiles) != 4 {
		t.Fatalf("%d tiles with a number:\n%s", len(tiles), first)
	}
	for _, tile := range tiles {
		health, number := tile[1], tile[3]
		if strconv.Itoa(counts[health]) != number || !strings.Contains(told, fmt.Sprintf("chancery_certificates{health=%q} %s\n", health, number)) {
			t.Errorf("the page says %s of %s, status says %d, and the metrics say:\n%s", number, health, counts[health], told)
		}
		if _, rows := get(t, s, html.UnescapeString(tile[2])); !strings.Contains(rows, number+" of 88 Certificates") || health != "healthy" && certificatesOf(rows) != counts[health] {
			t.Errorf("%s leads to other rows:\n%s", tile[2], rows)
		}
	}
}

// TestEmpty: without a Certificate the page says what to run first, and that is right.
func TestEmpty(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		objects []client.Object
		kinds   string
	}{
		"nothing":           {nil, "Issuer Certificate"},
		"an issuer":         {[]client.Object{authority("internal", 400)}, "Certificate"},
		"one that is wrong": {[]client.Object{clusterIssuer("vault", cmmeta.ConditionFalse, "VaultError", "permission denied")}, "Issuer Certificate"},
	} {
		_, text := get(t, pages(t, c.objects...), "/")
		text = strings.NewReplacer(`<span class="nb">`, "", "</span>", "").Replace(text)
		_, command, _ := strings.Cut(html.UnescapeString(text), "kubectl apply -n default -f - <<'END'\n")
		manifest, _, found := strings.Cut(command, "\nEND<")
		kinds := ""
		for part := range strings.SplitSeq(manifest, "---\n") {
			into := map[string]any{"Issuer": &certmanagerv1.Issuer{}, "Certificate": &certmanagerv1.Certificate{}}
			for kind, object := range into {
				if strings.Contains(part, "\nkind: "+kind+"\n") {
					kinds = strings.TrimSpace(kinds + " " + kind)
					if err := yaml.UnmarshalStrict([]byte(part), object); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
			}
		}
		if !found || kinds != c.kinds || strings.Contains(text, "<table") {
			t.Errorf("%s: %s\n%s", name, kinds, text)
		}
	}
}

// many are certificates of the longest names, some of which are being issued.
func many(n int) (all []client.Object) {
	for i := range n {
		name := fmt.Sprintf("%s%05d", strings.Repeat(long, 4)[:248], i)
		crt := certificate(strings.Repeat("n", 63), name, name, (i*7919)%90)
		crt.Spec.DNSNames = []string{"*.example.com"}
		if i%100 == 0 {
			all = append(all, ordered(crt, strings.Repeat(`"&<é`, 500), strings.Repeat("\U0001f512", 500), "")...)
			continue
		}
		all = append(all, crt)
	}
	return all
}

// long is a label of a DNS name that is as long as it may be.
var long = strings.Repeat("a", 63) + "."

// crowd is a page about 10,000 certificates, and a browser that is admitted to it.
type crowd struct {
	t      *testing.T
	c      *counted
	jar    *http.Cookie
	origin string
	views  []string
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	all := many(10_000)
	// One has texts of every length: many names, a message of some megabyte, characters that HTML writes in five.
	large := certificate("shop", "large", "large", 0)
	for i := range 2000 {
		large.Spec.DNSNames = append(large.Spec.DNSNames, fmt.Sprintf("%d.%s.example.com", i, strings.Repeat(long, 3)))
	}
	all = append(all, ordered(large, strings.Repeat(`"+`, 500_000))...)
	for i := range 5 * pageRows { // rows that stand for five Certificates each, with as many long causes
		name := fmt.Sprintf("%s%05d", strings.Repeat(long, 4)[:248], 10_000+i)
		why := cause.New(cause.Class(fault.ClassCredential), "", name, strings.Repeat(string(rune('a'+i/pageRows)), 100)+strings.Repeat(`"&<é`, 500))
		all = append(all, failed(certificate(strings.Repeat("n", 63), name, fmt.Sprintf("%s%05d", name[:240], i%pageRows), 1), time.Hour*99, why))
	}
	w := &crowd{t: t, c: cluster(t, all...), jar: &http.Cookie{}}
	opened := serve(t, w.c, "")
	w.fetch(opened)
	if n := w.c.requests.Load(); n > 16 {
		t.Errorf("%d requests at the beginning", n)
	}
	w.origin, _, _ = strings.Cut(opened, opening)
	first := all[0]
	w.views = []string{"/", "/?q=state:late", "/?page=70", "/?q=credential", "/issuers", "/queue", certificatePath(first.GetNamespace(), first.GetName()), "/certificate/shop/large"}
	return w
}

func (w *crowd) fetch(url string) string {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	request.AddCookie(w.jar)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	for _, cookie := range answer.Cookies() {
		w.jar = cookie
	}
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		w.t.Fatalf("%s: %v, %d %s", url, err, answer.StatusCode, text)
	}
	return string(text)
}

// TestTenThousand: with 10,000 certificates of the longest names, no view is larger than 200 KB, and none asks the API
// server. TestViewsGrow and TestViewsTakeNoTime say that none is slow.
func TestTenThousand(t *testing.T) {
	t.Parallel()
	w := newCrowd(t)
	for _, path := range w.views {
		before, size := w.c.requests.Load(), 0
		for range 5 {
			size = len(w.fetch(w.origin + path))
		}
		t.Logf("%.30s: %d bytes with %d requests", path, size, w.c.requests.Load()-before)
		if size > 200<<10 || w.c.requests.Load()-before > 5 {
			t.Errorf("%.30s: %d bytes with %d requests", path, size, w.c.requests.Load()-before)
		}
	}
	if text := w.fetch(w.origin + "/certificate/shop/large"); !strings.Contains(text, "<dt>what to do</dt>") || !strings.Contains(text, "status -n shop large") {
		t.Error("a long cause leaves no place for what to do, or the page does not say that it is cut")
	}
}

// TestViewsGrow: what the views cost grows with the number of certificates, and not with its square. The same holds for
// the picture that they are views of, which is made anew every few seconds.
func TestViewsGrow(t *testing.T) {
	all := many(10_000)
	of := func(n int) *site { return pages(t, all[:n]...) }
	views := func(s *site) func() {
		return func() {
			for _, path := range []string{"/", "/?page=10", "/?q=credential", "/issuers", "/queue", certificatePath(all[0].GetNamespace(), all[0].GetName())} {
				if code, text := get(t, s, path); code != http.StatusOK {
					t.Fatalf("%s: %d %s", path, code, text)
				}
			}
		}
	}
	failing := make([]client.Object, 0, 10_000)
	for i := range cap(failing) { // each with other words, and many hosts that are looked for in them
		crt := certificate("shop", fmt.Sprintf("web-%d", i), "ca", 9)
		for n := range 20 {
			crt.Spec.DNSNames = append(crt.Spec.DNSNames, fmt.Sprintf("%d.%s.example.com", n, strings.Repeat(long, 3)))
		}
		why := fmt.Sprintf("%d %s", i, strings.Repeat("a ", 250))
		failing = append(failing, failed(crt, time.Hour, cause.New(cause.Class(fault.ClassSelfCheck), "", "", why)))
	}
	t.Run("failing", func(t *testing.T) {
		growth.Linear(t, len(failing), func(n int) func() {
			s := pages(t, failing[:n]...)
			return func() { get(t, s, "/") }
		})
	})
	t.Run("views", func(t *testing.T) {
		growth.Linear(t, len(all), func(n int) func() { return views(of(n)) })
	})
	t.Run("picture", func(t *testing.T) {
		growth.Linear(t, 2000, func(n int) func() { return func() { views(of(n))() } })
	})
}

// TestViewsTakeNoTime: with 10,000 certificates each view comes within a second.
func TestViewsTakeNoTime(t *testing.T) {
	slow.Test(t, slow.Numbers)
	w := newCrowd(t)
	for _, path := range w.views {
		slow.Best(t, fmt.Sprintf("%.30s", path), time.Second, func() time.Duration {
			began := time.Now()
			w.fetch(w.origin + path)
			return time.Since(began)
		})
	}
}

// TestGuard: one browser is admitted, once, by an address that nobody can guess, and no page of another site leads in.
func TestGuard(t *testing.T) {
	t.Parallel()
	g := newGuard("127.0.0.1:8080", pages(t, scene(t)...))
	ask := func(method, host, path string, cookies ...*http.Cookie) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
		r.Host = host
		for _, c := range cookies {
			r.AddCookie(c)
		}
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		return w
	}
	const here = "127.0.0.1:8080"
	_, token, _ := strings.Cut(g.url(), opening)
	for path, want := range map[string]int{"/": 403, "/style.css": 403, "/open/": 403, "/open/wrong": 403} {
		if got := ask(http.MethodGet, here, path).Code; got != want {
			t.Errorf("%s without a cookie: %d", path, got)
		}
	}
	for _, host := range []string{"evil.example.com", "evil.example.com:8080", "localhost:8080", "127.0.0.1"} {
		if got := ask(http.MethodGet, host, opening+token).Code; got != http.StatusMisdirectedRequest {
			t.Errorf("host %s: %d", host, got)
		}
	}
	if got := ask(http.MethodHead, here, opening+token).Code; got != http.StatusForbidden {
		t.Errorf("HEAD uses the address up: %d", got)
	}
	open := func() *http.Cookie {
		w := ask(http.MethodGet, here, opening+token)
		cookie, err := http.ParseSetCookie(w.Header().Get("Set-Cookie"))
		if w.Code != http.StatusOK || err != nil || !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode {
			t.Fatalf("the address does not open: %d %v %v", w.Code, cookie, err)
		}
		return cookie
	}
	forgotten := open()
	for range maxPending - 1 { // browsers that fail to start
		open()
	}
	cookie := open()
	if got := ask(http.MethodGet, here, "/", forgotten).Code; got != http.StatusForbidden {
		t.Errorf("cookies are kept without bound: %d", got)
	}
	if got := ask(http.MethodGet, here, "/", &http.Cookie{Name: cookie.Name}).Code; got != http.StatusForbidden {
		t.Errorf("an empty cookie: %d", got)
	}
	late := open()
	if got := ask(http.MethodGet, here, "/", cookie).Code; got != http.StatusOK {
		t.Errorf("the first that comes back: %d", got)
	}
	if got := ask(http.MethodGet, here, "/", late).Code; got != http.StatusForbidden {
		t.Errorf("a second browser that comes back: %d", got)
	}
	for who, want := range map[*http.Cookie]int{cookie: http.StatusOK, late: http.StatusForbidden, {Name: cookie.Name}: http.StatusForbidden} {
		if again := ask(http.MethodGet, here, opening+token, who); again.Code != want || again.Header().Get("Set-Cookie") != "" {
			t.Errorf("the address opens again: %d %v", again.Code, again.Header())
		}
	}
	if got := ask(http.MethodPost, here, "/", cookie).Code; got != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", got)
	}
	page := ask(http.MethodGet, here, "/", cookie)
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
	} {
		if got := page.Header().Get(name); page.Code != http.StatusOK || !strings.HasPrefix(got, want) {
			t.Errorf("%d, %s: %s", page.Code, name, got)
		}
	}
	if strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") {
		t.Errorf("the policy lets others in: %s", policy)
	}
}

// TestAddress: nothing but loopback is served.
func TestAddress(t *testing.T) {
	t.Parallel()
	for address, good := range map[string]bool{
		"127.0.0.1:0": true, "[::1]:8080": true, "0.0.0.0:8080": false, ":8080": false, "192.0.2.1:80": false, "localhost:80": false, "": false,
	} {
		if err := CheckAddress(address); (err == nil) != good {
			t.Errorf("%q: %v", address, err)
		}
	}
	if err := Serve(t.Context(), Options{Address: "0.0.0.0:0"}, nil); err == nil {
		t.Error("it is served everywhere")
	}
}

// TestTimeline: each certificate is counted where it ends and renews, in a unit that fits most of them.
func TestTimeline(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	row := func(renews, ends time.Duration) explain.Row {
		return explain.Row{Renews: &metav1.Time{Time: now.Add(renews)}, Expires: &metav1.Time{Time: now.Add(ends)}}
	}
	for name, c := range map[string]struct {
		rows []explain.Row
		unit time.Duration
		want string
	}{
		"hours":  {[]explain.Row{row(time.Minute, 90*time.Minute), row(-time.Minute, time.Minute)}, time.Hour, "before now 1 0, the hour from 2026-01-02 03:04 1 1, the hour from 2026-01-02 04:04 0 1"},
		"days":   {[]explain.Row{row(3*day, 6*day+time.Hour)}, day, "the day from 2026-01-05 1 0, the day from 2026-01-08 0 1"},
		"weeks":  {[]explain.Row{row(60*day, 90*day), {}}, week, "the week from 2026-02-27 1 0, the week from 2026-03-27 0 1"},
		"years":  {[]explain.Row{row(50*365*day, 99*365*day)}, 52 * week, "later 1 1"},
		"none":   {[]explain.Row{{}}, time.Hour, ""},
		"months": {[]explain.Row{row(300*day, 398*day)}, 4 * week, "28 days from 2026-10-09 1 0, 28 days from 2027-01-29 0 1"},
	} {
		line := newTimeline(c.rows, now)
		var got []string
		for _, p := range line.Pieces {
			if p.Ends+p.Renews > 0 {
				got = append(got, fmt.Sprint(p.Name, " ", p.Renews, " ", p.Ends))
			}
			if p.X < 0 || p.X+2*p.Width > lineWidth || p.EndY < 0 || p.RenewY < 0 {
				t.Errorf("%s: outside of the picture: %+v", name, p)
			}
		}
		if strings.Join(got, ", ") != c.want || line.unit != c.unit {
			t.Errorf("%s: %s %q", name, line.unit, got)
		}
	}
}
