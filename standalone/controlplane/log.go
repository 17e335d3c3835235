package controlplane

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/grpclog"
	"gopkg.in/natefinch/lumberjack.v2"
	"k8s.io/klog/v2"
)

// logFile takes the warnings and errors of all parts. Their information messages are dropped: they are many and
// describe Kubernetes' own business.
type logFile struct {
	path     string
	stopping atomic.Bool

	mu     sync.Mutex // holds closed and file together
	closed bool
	file   *lumberjack.Logger
}

// openLog directs the process-wide loggers of Kubernetes and gRPC to the file. The file is made at the first message.
func openLog(path string) *logFile {
	l := &logFile{path: path, file: &lumberjack.Logger{Filename: path, MaxSize: 10 /* MB */, MaxBackups: 2}}
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelWarn})))
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, l))
	// klog.Fatal ends the process: a post-start hook of kube-apiserver that cannot do its work does this. The user must
	// not be left with a silent exit.
	klog.OsExit = func(code int) {
		if l.stopping.Load() {
			select {} // a hook that the stop has interrupted: the process has still to clean up, and ends by itself
		}
		fmt.Fprintf(os.Stderr, "the control plane gave up: its reason is at the end of %s\n", path)
		os.Exit(code) //nolint:forbidigo // klog is ending the process; this only adds words to it
	}
	return l
}

// zap returns a logger for etcd that writes to the file what is at level or above.
func (l *logFile) zap(level zapcore.LevelEnabler) *zap.Logger {
	encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	return zap.New(zapcore.NewCore(encoder, zapcore.AddSync(l), level))
}

// explain adds to err where to read more.
func (l *logFile) explain(err error) error {
	return fmt.Errorf("%w (details are in %s)", err, l.path)
}

// Write implements io.Writer. After close it drops everything: parts that the stop has abandoned still write, and
// somebody may have deleted the file, or its whole directory, on purpose.
func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return len(p), nil
	}
	return l.file.Write(p)
}

// stop says that the parts are being stopped: from now on none of them may end the process.
func (l *logFile) stop() { l.stopping.Store(true) }

// close closes the file for good.
func (l *logFile) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	_ = l.file.Close()
}
