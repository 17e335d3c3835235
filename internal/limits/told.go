package limits

// Bounds of what the controller says about one object.
const (
	// EventBytes is the size of the message of an event, and of each cause in a line of the log. The first link that
	// does not fit comes on top of that.
	EventBytes = 1024
	// LinkBytes is the size of that link.
	LinkBytes = 4 << 10
	// Events is how many events about one object each component may send at once, and EventSeconds after how many
	// seconds it may send one more. Other clients of Kubernetes have the same bounds.
	Events       = 25
	EventSeconds = 300
)

// told are the rows about events and the log.
func told() []Row {
	return []Row{
		{
			What: "Message of an event", Who: "who writes what it quotes", Numbers: []Number{held("event", EventBytes, "bytes", Cut), held("link", LinkBytes, "bytes", Cut)},
			Bound: "%s, and a link of %s",
			Costs: "Linear", Above: "It is cut, and has … where words are missing. No link is cut",
			Tests: []string{"TestLongMessagesAreCut", "TestQuoteCutsNoLink", "TestWarningsAreFew"},
			Fuzz:  []string{"FuzzQuote"},
		},
		{
			What: "Events about one object", Who: "who changes the object",
			Numbers: []Number{held("events", Events, "", Cut), held("events every five minutes", 1, "", Cut)},
			Bound:   "%s, and %s more every five minutes, for each component, as clients of Kubernetes have it. A warning that repeats is told once",
			Costs:   "A request to the API server", Above: "They are left out; the log has them", Tests: []string{"TestEventsAreFew", "TestHugeIngresses", "TestRefused"},
			Parser: "nothing is parsed",
		},
		{
			What: "Lines of the log about one object", Who: "who changes the object",
			Numbers: []Number{held("steps in a line", Listed, "steps", Cut), held("causes in a line", Listed, "causes", Cut), held("cause", EventBytes, "bytes", Cut)},
			Bound:   "One for each look that changes something, or fails for a new reason; failures back off. %s, %s of %s each",
			Costs:   "Linear", Above: "The line says how many more there are", Tests: []string{"TestLongMessagesAreCut"},
			Fuzz: []string{"FuzzQuote"},
		},
	}
}
