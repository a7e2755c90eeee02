package e2e

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// prometheus keeps scrapes of one bridge and answers queries about them, with the query engine of the real one.
type prometheus struct {
	engine *promql.Engine
	parser parser.Parser
	now    time.Time // of the newest scrape
	series map[string]*scraped
}

// scraped is one series.
type scraped struct {
	labels  labels.Labels
	samples []chunks.Sample
}

func newPrometheus(t *testing.T) *prometheus {
	t.Helper()
	p := &prometheus{parser: parser.NewParser(parser.Options{}), now: time.Unix(1_800_000_000, 0), series: map[string]*scraped{}}
	p.engine = promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: patience, Parser: p.parser})
	t.Cleanup(func() {
		if err := p.engine.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// scrape reads the metrics as they are, and takes them for those of half a minute later than the last time.
func (p *prometheus) scrape(t *testing.T, url string) {
	t.Helper()
	p.now = p.now.Add(30 * time.Second)
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", url, res.Status)
	}
	decoder := expfmt.SampleDecoder{Dec: expfmt.NewDecoder(res.Body, expfmt.ResponseFormat(res.Header)), Opts: &expfmt.DecodeOptions{}}
	for {
		var samples model.Vector
		if err := decoder.Decode(&samples); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, s := range samples {
			s.Metric["job"], s.Metric["instance"] = "mcpbridge", "bridge:9464"
			key := s.Metric.String()
			if p.series[key] == nil {
				set := map[string]string{}
				for name, value := range s.Metric {
					set[string(name)] = string(value)
				}
				p.series[key] = &scraped{labels: labels.FromMap(set)}
			}
			p.series[key].samples = append(p.series[key].samples, point{p.now.UnixMilli(), float64(s.Value)})
		}
	}
}

// labelsOf returns the names of all labels of a metric, nil if there is none of this name.
func (p *prometheus) labelsOf(metric string) map[string]bool {
	var found map[string]bool
	for _, s := range p.series {
		if s.labels.Get(model.MetricNameLabel) != metric {
			continue
		}
		if found == nil {
			found = map[string]bool{}
		}
		s.labels.Range(func(l labels.Label) { found[l.Name] = true })
	}
	return found
}

// metrics returns the names of all metrics, sorted.
func (p *prometheus) metrics() []string {
	found := map[string]bool{}
	for _, s := range p.series {
		found[s.labels.Get(model.MetricNameLabel)] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// query evaluates an expression at the time of the newest scrape.
func (p *prometheus) query(ctx context.Context, text string) (promql.Vector, error) {
	q, err := p.engine.NewInstantQuery(ctx, p, nil, text, p.now)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	result := q.Exec(ctx)
	if result.Err != nil {
		return nil, result.Err
	}
	vector, err := result.Vector()
	return slices.Clone(vector), err
}

// Querier makes prometheus a storage.Queryable.
func (p *prometheus) Querier(int64, int64) (storage.Querier, error) { return querier{p}, nil }

type querier struct{ p *prometheus }

func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	set := &seriesSet{at: -1}
	for _, key := range slices.Sorted(maps.Keys(q.p.series)) {
		s := q.p.series[key]
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.labels.Get(m.Name)) }) {
			set.series = append(set.series, storage.NewListSeries(s.labels, s.samples))
		}
	}
	return set
}

func (querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.ErrUnsupported
}

func (querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.ErrUnsupported
}

func (querier) Close() error { return nil }

type seriesSet struct {
	series []storage.Series
	at     int
}

func (s *seriesSet) Next() bool                        { s.at++; return s.at < len(s.series) }
func (s *seriesSet) At() storage.Series                { return s.series[s.at] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// point is one sample.
type point struct {
	t int64
	v float64
}

func (p point) T() int64                    { return p.t }
func (point) ST() int64                     { return 0 }
func (p point) F() float64                  { return p.v }
func (point) H() *histogram.Histogram       { return nil }
func (point) FH() *histogram.FloatHistogram { return nil }
func (point) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (p point) Copy() chunks.Sample         { return p }

// selectors returns what an expression reads, and the labels that it groups by.
func (p *prometheus) selectors(text string) (metrics map[string][]string, grouped []string, err error) {
	expr, err := p.parser.ParseExpr(text)
	if err != nil {
		return nil, nil, err
	}
	metrics = map[string][]string{}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch node := node.(type) {
		case *parser.VectorSelector:
			for _, m := range node.LabelMatchers {
				if m.Name != model.MetricNameLabel {
					metrics[node.Name] = append(metrics[node.Name], m.Name)
				}
			}
			metrics[node.Name] = append(metrics[node.Name], model.MetricNameLabel)
		case *parser.AggregateExpr:
			grouped = append(grouped, node.Grouping...)
		}
		return nil
	})
	return metrics, grouped, nil
}

// base is the name of the family that a series belongs to.
func base(metric string) string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if name, ok := strings.CutSuffix(metric, suffix); ok {
			return name
		}
	}
	return metric
}
