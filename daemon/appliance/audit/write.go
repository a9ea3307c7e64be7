package audit

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/excerpt"
)

// Bounds of a log on DATA, besides the API server's: two files of 8 MiB, and none that is older.
const (
	maxMegabytes = 8
	maxComplete  = 1
	maxDays      = 90
	maxText      = 512 // bytes
)

// Log is written by a server that is not Kubernetes'. A nil one writes nothing.
type Log struct {
	file   *lumberjack.Logger
	report *slog.Logger // what keeps the log from being written
}

// NewLog returns a log that is written into a file and complete ones next to it. Nothing is opened before the first
// request.
func NewLog(file string, report *slog.Logger) *Log {
	return &Log{
		file:   &lumberjack.Logger{Filename: file, MaxSize: maxMegabytes, MaxBackups: maxComplete, MaxAge: maxDays},
		report: report,
	}
}

// Request is one that changed something, or was not let to. Who asked is known.
type Request struct {
	HTTP     *http.Request // nil: a command that root ran
	Received time.Time
	User     string
	Verb     string
	Object   auditv1.ObjectReference
	Code     int    // of HTTP
	Reason   string // why it was refused; "" if it was not
}

// NewArtifact is an artifact as rights name it.
func NewArtifact(k artifact.Key) auditv1.ObjectReference {
	return auditv1.ObjectReference{
		APIGroup: artifact.Group, Resource: string(k.Collection), Namespace: k.Owner, Name: k.Name,
	}
}

// Add writes a request down, whatever became of it. Of its address only the path is written: a query may be signed.
func (l *Log) Add(r Request) {
	if l == nil {
		return
	}

	event := auditv1.Event{
		TypeMeta:                 metav1.TypeMeta{Kind: "Event", APIVersion: auditv1.SchemeGroupVersion.String()},
		Level:                    auditv1.LevelMetadata,
		AuditID:                  uuid.NewUUID(),
		Stage:                    auditv1.StageResponseComplete,
		Verb:                     r.Verb,
		User:                     authenticationv1.UserInfo{Username: r.User},
		ObjectRef:                &r.Object,
		ResponseStatus:           &metav1.Status{Code: int32(r.Code), Message: excerpt.Start(r.Reason, maxText)},
		RequestReceivedTimestamp: metav1.NewMicroTime(r.Received),
		StageTimestamp:           metav1.NewMicroTime(time.Now()),
	}
	if r.HTTP != nil {
		describeRequest(&event, r.HTTP)
	}

	line, err := json.Marshal(event)
	if err == nil {
		_, err = l.file.Write(append(line, '\n'))
	}
	if err != nil {
		l.report.Error("a change is not in the audit log", "user", r.User, "error", fmt.Errorf("write audit log: %w", err))
	}
}

// describeRequest adds what a request says of itself.
func describeRequest(event *auditv1.Event, r *http.Request) {
	from, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		from = r.RemoteAddr
	}
	event.RequestURI = excerpt.Start(r.URL.EscapedPath(), maxText)
	event.SourceIPs = []string{from}
	event.UserAgent = excerpt.Start(r.UserAgent(), maxText)
}
