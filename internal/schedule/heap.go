package schedule

// heap is a binary heap that knows where its members are, so that any of them
// can be moved or taken out in O(log n).
type heap[T any] struct {
	items []T
	// less orders the members; it is a strict total order.
	less func(a, b T) bool
	// place tells a member its position; -1 when it leaves.
	place func(member T, position int)
}

func (h *heap[T]) len() int { return len(h.items) }

// top is the least member; it panics on an empty heap.
func (h *heap[T]) top() T { return h.items[0] }

func (h *heap[T]) push(member T) {
	h.items = append(h.items, member)
	h.place(member, len(h.items)-1)
	h.up(len(h.items) - 1)
}

// remove takes the member at position out.
func (h *heap[T]) remove(position int) {
	last := len(h.items) - 1
	h.swap(position, last)
	h.place(h.items[last], -1)
	var zero T
	h.items[last] = zero
	h.items = h.items[:last]
	if position < last {
		h.fix(position)
	}
}

// fix restores the order after the key of the member at position has changed.
func (h *heap[T]) fix(position int) {
	if !h.down(position) {
		h.up(position)
	}
}

func (h *heap[T]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(h.items[i], h.items[parent]) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h *heap[T]) down(i int) bool {
	start := i
	for {
		child := 2*i + 1
		if child >= len(h.items) {
			break
		}
		if right := child + 1; right < len(h.items) && h.less(h.items[right], h.items[child]) {
			child = right
		}
		if !h.less(h.items[child], h.items[i]) {
			break
		}
		h.swap(i, child)
		i = child
	}
	return i > start
}

func (h *heap[T]) swap(i, j int) {
	if i == j {
		return
	}
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.place(h.items[i], i)
	h.place(h.items[j], j)
}
