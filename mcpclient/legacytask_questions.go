package mcpclient

import (
	"bytes"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// metaRelatedTask names the task that a message belongs to (2025-11-25
// basic/utilities/tasks, Related Task Metadata).
const metaRelatedTask = "io.modelcontextprotocol/related-task"

// taskQuestions counts what the tasks of 2025-11-25 that are waited for ask. The
// zero value is ready.
type taskQuestions struct {
	mu    sync.Mutex // guards the following
	tasks map[string]*questionCount
}

type questionCount struct {
	arrived   int // so far
	answering int // at the moment
}

// watch counts the questions of a task until stop is called.
func (q *taskQuestions) watch(id string) (stop func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.tasks == nil {
		q.tasks = map[string]*questionCount{}
	}
	q.tasks[id] = &questionCount{}
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.tasks, id)
	}
}

// look returns the counts of a task that is watched.
func (q *taskQuestions) look(id string) (arrived, answering int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := q.tasks[id]; n != nil { // a server may use an id twice
		return n.arrived, n.answering
	}
	return 0, 0
}

// begin counts one question of the server until answered is called.
func (q *taskQuestions) begin(params jsontext.Value) (answered func()) {
	id, ok := relatedTask(params)
	if !ok {
		return func() {}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.tasks[id]
	if n == nil {
		return func() {}
	}
	n.arrived++
	n.answering++
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		n.answering--
	}
}

// relatedTask returns the id of the task that the params of a message name.
func relatedTask(params jsontext.Value) (id string, ok bool) {
	if !bytes.Contains(params, []byte("related-task")) { // the slash before it may be escaped
		return "", false
	}
	return unquote(lookup(params, []string{"_meta", metaRelatedTask, "taskId"}))
}

// relate adds the task of a question to its answer, where 2025-11-25 demands it
// (basic/utilities/tasks, Associating Task-Related Messages).
func relate(result, params jsontext.Value) jsontext.Value {
	id, ok := relatedTask(params)
	if !ok || result.Kind() != '{' {
		return result
	}
	var meta Meta
	out := []byte{'{'}
	err := eachMember(result, func(key string, value jsontext.Value) error {
		if key == "_meta" {
			if value.Kind() == '{' {
				return meta.setObject(value)
			}
			return nil
		}
		out = append(append(appendString(out, key), ':'), value...)
		out = append(out, ',')
		return nil
	})
	if err != nil {
		return result
	}
	meta.Set(metaRelatedTask, append(appendString([]byte(`{"taskId":`), id), '}'))
	out = meta.appendMembers(append(out, `"_meta":{`...))
	return append(out, `}}`...)
}
