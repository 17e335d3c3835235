package limits

// Bounds of what the controller says about one object.
const (
	// EventBytes is the size of the message of an event, and of each cause in a line of the log, beside the first link
	// that has no room in it.
	EventBytes = 1024
)

// told are the rows about events and the log.
func told() []Row {
	return []Row{
		{
			What: "Message of an event", Who: "who writes what it quotes", Bound: bytes(EventBytes) + ", and a link of 4 KiB",
			Costs: "Linear", Above: "It is cut, and has … where words are missing. No link is cut",
			Tests: []string{"TestLongMessagesAreCut", "TestQuoteCutsNoLink", "TestWarningsAreFew"},
			Fuzz:  []string{"FuzzQuote"},
		},
		{
			What: "Events about one object", Who: "who changes the object",
			Bound: "25, and one more every five minutes, for each component, as clients of Kubernetes have it. A warning that repeats is told once",
			Costs: "A request to the API server", Above: "They are left out; the log has them", Tests: []string{"TestHugeIngresses", "TestRefused"},
			Parser: "nothing is parsed",
		},
		{
			What: "Lines of the log about one object", Who: "who changes the object",
			Bound: "One for each look that changes something, or fails for a new reason; failures back off. " + count(Listed, "steps and as many causes, ") +
				bytes(EventBytes) + " each",
			Costs: "Linear", Above: "The line says how many more there are", Tests: []string{"TestLongMessagesAreCut"},
			Fuzz: []string{"FuzzQuote"},
		},
	}
}
