package v1

// The conditions of Orders and Challenges. There is at most one of them, and none once the object has succeeded. Both
// are our own, under the names that kstatus gives them.
const (
	ConditionReconciling = "Reconciling"
	ConditionStalled     = "Stalled"
)

// Condition says whether an Order or a Challenge is under way, or has failed for good.
type Condition struct {
	// Reconciling or Stalled.
	Type string `json:"type"`

	// True: a condition that does not hold is left out.
	Status string `json:"status"`

	// The state of the object, in one word.
	// +optional
	Reason string `json:"reason,omitempty"`

	// What the object waits for, or why it has failed.
	// +optional
	Message string `json:"message,omitempty"`
}

// SetProgress sets the conditions to what the rest of the status says.
func (o *Order) SetProgress() {
	o.Status.Conditions = progress(o.Status.State == Valid && len(o.Status.Certificate) > 0, o.Status.State, o.Status.Reason)
}

// SetProgress sets the conditions to what the rest of the status says.
func (c *Challenge) SetProgress() {
	c.Status.Conditions = progress(c.Status.State == Valid, c.Status.State, c.Status.Reason)
}

func progress(done bool, state State, message string) []Condition {
	if done {
		return nil
	}
	c := Condition{Type: ConditionReconciling, Status: "True", Message: message}
	if state.IsFailure() {
		c.Type = ConditionStalled
	}
	switch state {
	case Unknown, Pending:
		c.Reason = "Pending"
	case Ready, Valid:
		c.Reason = "Ready"
	case Processing:
		c.Reason = "Processing"
	case Invalid:
		c.Reason = "Invalid"
	case Expired:
		c.Reason = "Expired"
	case Errored:
		c.Reason = "Errored"
	}
	return []Condition{c}
}
