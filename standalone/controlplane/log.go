package controlplane

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/grpclog"
	"gopkg.in/natefinch/lumberjack.v2"
	"k8s.io/klog/v2"
)

// logFile takes the warnings and errors of all parts. Their information messages are dropped: they are many and
// describe Kubernetes' own business.
type logFile struct {
	path string
	w    *lumberjack.Logger
}

// openLog directs the process-wide loggers of Kubernetes and gRPC to the file. The file is made at the first message.
func openLog(path string) *logFile {
	w := &lumberjack.Logger{Filename: path, MaxSize: 10 /* MB */, MaxBackups: 2}
	l := &logFile{path: path, w: w}
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn})))
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, w))
	// klog.Fatal ends the process: a post-start hook of kube-apiserver that cannot do its work does this. The user must
	// not be left with a silent exit.
	klog.OsExit = func(code int) {
		fmt.Fprintf(os.Stderr, "the control plane gave up: its reason is at the end of %s\n", path)
		os.Exit(code) //nolint:forbidigo // klog is ending the process; this only adds words to it
	}
	return l
}

// zap returns a logger for etcd that writes to the file what is at level or above.
func (l *logFile) zap(level zapcore.LevelEnabler) *zap.Logger {
	encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	return zap.New(zapcore.NewCore(encoder, zapcore.AddSync(l.w), level))
}

// explain adds to err where to read more.
func (l *logFile) explain(err error) error {
	return fmt.Errorf("%w (details are in %s)", err, l.path)
}

// close closes the file. A message that comes later opens it again, which harms nobody.
func (l *logFile) close() { _ = l.w.Close() }
