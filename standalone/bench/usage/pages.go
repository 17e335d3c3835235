package usage

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Page reads a page that a process serves: its metrics, or a profile. The error says which page.
func Page(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept-Encoding", "identity") // compressing takes memory, which would be measured
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", url, response.Status)
	}
	page, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", url, err)
	}
	return page, nil
}

// Heap makes a process collect garbage. The process serves its profiles at a URL, as net/http/pprof does. Heap returns
// how many bytes of the heap are in use then, and the profile.
func Heap(ctx context.Context, profiles string) (inUse int64, profile []byte, err error) {
	for range 2 { // what lies in a sync.Pool outlives the first collection
		if profile, err = Page(ctx, profiles+"heap?debug=1&gc=1"); err != nil {
			return 0, nil, err
		}
	}
	// It says what was in use before it was written: writing it takes memory, and the more, the more it has.
	_, rest, _ := strings.Cut(string(profile), "\n# HeapAlloc = ")
	number, _, _ := strings.Cut(rest, "\n")
	if inUse, err = strconv.ParseInt(number, 10, 64); err != nil {
		return 0, nil, fmt.Errorf("the profile of the heap does not say what is in use: %w", err)
	}
	return inUse, profile, nil
}
