package certificates_test

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/slow"
)

const (
	pairs  = 20
	leaves = 10 // Secrets, the first half by the issuer "ca", the others by "sub"
)

// town is a cluster in which processes talk to each other.
type town struct {
	*rig.World

	dirs map[string][]string // where a Secret is mounted

	mu           sync.Mutex
	done, failed int
	failures     map[string]int
}

func leafName(n int) string { return fmt.Sprint("talker-", n%leaves) }

// newTown has a root, an intermediate below it, and Secrets by both, and processes that have read the Secrets.
func newTown(t *testing.T, annotated bool) *town {
	t.Helper()
	w := &town{World: rig.NewWorld(t), dirs: map[string][]string{}, failures: map[string]int{}}
	w.Run(t, w.Config())
	withCA(t, w.World)
	sub := newCertificate(w.World, "sub", "ca")
	sub.Spec.IsCA, sub.Spec.CommonName = true, "test intermediate"
	w.Create(t, sub, &certmanagerv1.ClusterIssuer{
		ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName("sub")}, Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "sub"}},
	})
	for n := range leaves {
		w.Create(t, newCertificate(w.World, leafName(n), []string{"ca", "sub"}[n*2/leaves]))
	}
	if annotated {
		annotate(t, w.World, "ca", certmanagerv1.DeliverRootsAnnotation, true)
		annotate(t, w.World, "sub", certmanagerv1.DeliverRootsAnnotation, true)
	}
	for n := range leaves {
		awaitReady(t, w.World, leafName(n))
	}
	reads := []string{"once", "changed", "random"}
	for n := range pairs {
		server := w.place(t, leafName(n), reads[n%3])
		said := server.start(t)
		if !said.Scan() {
			t.Fatal("a server does not say where it is: ", said.Err())
		}
		client := w.place(t, leafName(n*7+5), reads[n/3%3])
		client.Server, client.Name = said.Text(), leafName(n)+".example.com"
		go w.count(client.start(t), client.Reads+" connects to "+server.Reads)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { <-ended }) // before the directories go
	events := w.Watch(t, &corev1.SecretList{})
	go func() {
		defer close(ended)
		w.kubelet(events)
	}()
	return w
}

// place mounts a Secret for a process.
func (w *town) place(t *testing.T, secret, reads string) *talker {
	t.Helper()
	dir := t.TempDir()
	if err := mount(dir, secretOf(t, w.World, secret).Data); err != nil {
		t.Fatal(err)
	}
	w.dirs[secret] = append(w.dirs[secret], dir)
	return &talker{Dir: dir, Reads: reads}
}

// kubelet brings what is in the Secrets to the processes: to each at a time of its own.
func (w *town) kubelet(events <-chan watch.Event) {
	late := map[string]map[string][]byte{}
	turn := time.NewTicker(25 * time.Millisecond)
	defer turn.Stop()
	for {
		select {
		case event, open := <-events:
			secret, is := event.Object.(*corev1.Secret)
			if !open {
				return
			}
			if is && event.Type != watch.Deleted {
				for _, dir := range w.dirs[secret.Name] {
					late[dir] = secret.Data
				}
			}
		case <-turn.C:
			for dir, data := range late { // any of them
				if err := mount(dir, data); err != nil {
					w.fails("kubelet: " + err.Error())
				}
				delete(late, dir)
				break
			}
		}
	}
}

// count takes down what a client says.
func (w *town) count(said *bufio.Scanner, who string) {
	for said.Scan() {
		w.mu.Lock()
		w.done++
		w.mu.Unlock()
		if text := said.Text(); text != "" {
			w.fails(who + ": " + text)
		}
	}
}

func (w *town) fails(by string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed++
	w.failures[by]++
}

func (w *town) counted() (done, failed int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done, w.failed
}

// talks waits until there are so many handshakes more.
func (w *town) talks(t *testing.T, more int) {
	t.Helper()
	before, _ := w.counted()
	rig.Eventually(t, fmt.Sprintf("%d handshakes more", more), func(context.Context) string {
		done, _ := w.counted()
		return wants(done >= before+more, done-before)
	})
}

// replace lets the root be replaced, then half of the leaves, the intermediate, and the other leaves.
func (w *town) replace(t *testing.T, turn func()) {
	t.Helper()
	turn()
	awaitSigner(t, w.World, "ca", "root")
	w.talks(t, pairs*5)
	w.renewLeaves(t, 0, leaves/4)
	w.talks(t, pairs*5)
	renew(t, w.World, "sub")
	awaitSigner(t, w.World, "sub", "sub")
	w.renewLeaves(t, leaves/4, leaves*3/4) // the last keep the root that they had, until the next rotation
	w.talks(t, pairs*5)
}

func (w *town) renewLeaves(t *testing.T, from, to int) {
	t.Helper()
	revisions := map[string]int{}
	for n := from; n < to; n++ {
		revisions[leafName(n)] = askToRenew(t, w.World, leafName(n)) + 1
	}
	for name, revision := range revisions {
		awaitRevision(t, w.World, name, revision)
	}
}

// run replaces the root twice, and once more because a backup brings an old Secret back.
func (w *town) run(t *testing.T) {
	t.Helper()
	w.talks(t, pairs*5)
	backup := secretOf(t, w.World, "root").Data
	w.replace(t, func() { renew(t, w.World, "root") })
	w.replace(t, func() { renew(t, w.World, "root") })
	w.renewLeaves(t, leaves*3/4, leaves)
	w.replace(t, func() {
		secret := secretOf(t, w.World, "root")
		secret.Data = backup
		if err := w.Client.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		awaitRevision(t, w.World, "root", 4)
	})
}

// TestHandshakesOfProcesses: the root is replaced while pairs of processes talk. A third of the processes have read
// their files at the start, a third read each change, and a third read at random. No handshake fails. Where the
// issuers do not deliver roots, some do.
func TestHandshakesOfProcesses(t *testing.T) {
	slow.Test(t, slow.Numbers)
	t.Run("roots are delivered", func(t *testing.T) {
		w := newTown(t, true)
		w.run(t)
		const bar = 5000
		if done, _ := w.counted(); done < bar {
			w.talks(t, bar-done)
		}
		done, failed := w.counted()
		t.Logf("%d handshakes of %d pairs of processes, %d failed", done, pairs, failed)
		if failed > 0 {
			t.Errorf("they failed by\n%s", w.says())
		}
	})
	t.Run("roots are not delivered", func(t *testing.T) {
		w := newTown(t, false)
		w.run(t)
		done, failed := w.counted()
		t.Logf("%d handshakes of %d pairs of processes, %d failed by\n%s", done, pairs, failed, w.says())
		if failed == 0 {
			t.Error("no handshake fails: the test shows nothing")
		}
	})
}

func (w *town) says() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for text, n := range w.failures {
		all = append(all, fmt.Sprintf("%5d %s", n, text))
	}
	slices.Sort(all)
	slices.Reverse(all)
	return strings.Join(all[:min(len(all), 10)], "\n")
}
