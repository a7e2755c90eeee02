package mcpclient

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestAnAnswerNamesTheTaskOfItsQuestion(t *testing.T) {
	const related = `{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"a\"/ü"}}}`
	for name, tc := range map[string]struct{ result, params, want string }{
		"no task":            {`{"a":1}`, `{"_meta":{"b":1}}`, `{"a":1}`},
		"no params":          {`{"a":1}`, ``, `{"a":1}`},
		"the words alone":    {`{"a":1}`, `{"message":"related-task"}`, `{"a":1}`},
		"no id":              {`{"a":1}`, `{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":7}}}`, `{"a":1}`},
		"an empty result":    {`{}`, related, `{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"a\"/ü"}}}`},
		"a result":           {`{"a":[1e400]}`, related, `{"a":[1e400],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"a\"/ü"}}}`},
		"meta of its own":    {`{"_meta":{"b":2},"a":1}`, related, `{"a":1,"_meta":{"b":2,"io.modelcontextprotocol/related-task":{"taskId":"a\"/ü"}}}`},
		"another task":       {`{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"b"}}}`, related, `{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"a\"/ü"}}}`},
		"meta that is none":  {`{"_meta":5}`, related, `{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"a\"/ü"}}}`},
		"an escaped slash":   {`{}`, `{"_meta":{"io.modelcontextprotocol\/related-task":{"taskId":"a"}}}`, `{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"a"}}}`},
		"no object":          {`[]`, related, `[]`},
		"an object in parts": {`{"a":`, related, `{"a":`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := string(relate(jsontext.Value(tc.result), jsontext.Value(tc.params))); got != tc.want {
				t.Errorf("got %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestTheQuestionsOfTasksAreCountedByTask(t *testing.T) {
	var q taskQuestions
	params := func(id string) jsontext.Value {
		return jsontext.Value(`{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"` + id + `"}}}`)
	}
	q.begin(params("a"))() // nobody waits for it
	stop := q.watch("a")
	first, second := q.begin(params("a")), q.begin(params("a"))
	q.begin(params("b"))()
	q.begin(nil)()
	first()
	if arrived, answering := q.look("a"); arrived != 2 || answering != 1 {
		t.Errorf("%d arrived, %d are answered", arrived, answering)
	}
	second()
	stop()
	if arrived, answering := q.look("a"); arrived != 0 || answering != 0 {
		t.Errorf("%d and %d are left", arrived, answering)
	}
}
