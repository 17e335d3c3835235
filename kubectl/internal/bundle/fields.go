package bundle

import (
	_ "embed"
	"strings"
	"sync"
)

//go:embed fields.txt
var list string

// entry is a line's first word, and one of the fields after it.
type entry struct{ as, end string }

// known is the list by its entries. Comments do no harm: nobody asks for fields as #.
var known = sync.OnceValue(func() map[entry]bool {
	all := map[entry]bool{}
	for line := range strings.Lines(list) {
		if words := strings.Fields(line); len(words) > 0 {
			for _, end := range words[1:] {
				all[entry{words[0], end}] = true
			}
		}
	}
	return all
})

// isKnown reports whether the end of a path is in the list.
func isKnown(as, path string) bool {
	for end, more := path, true; more; _, end, more = strings.Cut(end, ".") {
		if known()[entry{as, end}] {
			return true
		}
	}
	return false
}

// settings is the path below the configuration of others' programs, where numbers go, too.
const settings = "config"

// object takes out of an object what does not belong into a bundle. kind is the object's.
func (r *redactor) object(kind string, content map[string]any) {
	if meta, is := content["metadata"].(map[string]any); is {
		delete(meta, "managedFields")
	}
	r.value(kind, content)
}

// value keeps of a value the texts of known fields. path leads to the value; it is empty below an unknown field.
func (r *redactor) value(path string, value any) any {
	switch value := value.(type) {
	case string:
		switch {
		case isKnown("prose", path):
			return r.prose(value)
		case isKnown("pem", path) && r.domains != nil:
			return gone + ": it has host names"
		case isKnown("pem", path), isKnown("text", path):
			return r.text(value)
		}
		return gone
	case []any:
		if strings.HasSuffix(path, ".args") || strings.HasSuffix(path, ".command") {
			r.arguments(value)
			return value
		}
		for i := range value {
			value[i] = r.value(path, value[i])
		}
	case map[string]any:
		name, _ := value["name"].(string)
		for field := range value {
			value[field] = r.value(below(path, field, name), value[field])
		}
	default:
		if path == settings {
			return gone
		}
	}
	return value
}

// below is the path to a field of an object, or to the value of a key; name is what the object says of its own name.
func below(path, field, name string) string {
	at := path + "." + field
	switch {
	case isKnown("text", path+".*") && (!strings.HasSuffix(path, "nnotations") || ourDomains.MatchString(field)):
		return path + ".*" // annotations of others hold copies of objects, snippets, anything
	case field == settings || path == settings:
		return settings
	case !isKnown("in", path) || strings.Contains(field, "."),
		strings.HasSuffix(at, ".env.value") && !harmlessEnv.MatchString(strings.ToUpper(name)):
		return ""
	case strings.HasSuffix(field, "SecretRef"):
		return path + ".secretRef"
	}
	return at
}

// arguments takes out scripts, and the values of flags that may be secrets, also those that follow their flag.
func (r *redactor) arguments(all []any) {
	follows := false
	for i, item := range all {
		text, _ := item.(string)
		flag := strings.HasPrefix(text, "-")
		if follows || !flag && strings.ContainsAny(text, " \t\n") {
			all[i], follows = gone, false
			continue
		}
		follows = flag && !strings.Contains(text, "=") && assignment.MatchString(text+"=x") && !reference.MatchString(text)
		all[i] = r.prose(text)
	}
}
