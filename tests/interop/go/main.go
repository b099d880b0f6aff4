// Command round runs scenarios of RocketMQ's classic Go client and prints one line of JSON for each.
//
// Usage: round nameserver=HOST:PORT topic=T group=G [broker=HOST:PORT] [count=N] [timeout=SECONDS] SCENARIO...
// The lines, the options and the meaning of the verdict are those of Round.java.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type facts map[string]any

type round struct {
	nameserver, broker, topic, group string
	count                            int
	timeout                          time.Duration
	sent                             map[string]string
}

var scenarios = map[string]func(*round) (facts, error){
	"sync-send":    (*round).syncSend,
	"push-consume": (*round).pushConsume,
}

func (r *round) resolver() primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{r.nameserver})
}

func (r *round) syncSend() (facts, error) {
	p, err := rocketmq.NewProducer(
		producer.WithNsResolver(r.resolver()),
		producer.WithGroupName(r.group+"-producer"),
		producer.WithSendMsgTimeout(10*time.Second),
	)
	if err != nil {
		return nil, err
	}
	if err := p.Start(); err != nil {
		return nil, err
	}
	defer p.Shutdown()
	brokers := map[string]bool{}
	for i := 0; i < r.count; i++ {
		tag := []string{"TagA", "TagB"}[i%2]
		body := fmt.Sprintf("sync-send-%d", i)
		message := primitive.NewMessage(r.topic, []byte(body)).WithTag(tag).WithKeys([]string{"key-" + body})
		result, err := p.SendSync(context.Background(), message)
		if err != nil {
			return nil, err
		}
		if result.Status != primitive.SendOK {
			return nil, fmt.Errorf("not stored: %v", result)
		}
		brokers[result.MessageQueue.BrokerName] = true
		r.sent[body] = tag
	}
	return facts{"sent": r.count, "brokers": keys(brokers)}, nil
}

func (r *round) pushConsume() (facts, error) {
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(r.resolver()),
		consumer.WithGroupName(r.group+"-push"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return nil, err
	}
	var lock sync.Mutex
	received := map[string]bool{}
	unexpected := map[string]bool{}
	missing := map[string]bool{}
	for body := range r.sent {
		missing[body] = true
	}
	all := make(chan struct{})
	listener := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		lock.Lock()
		defer lock.Unlock()
		for _, message := range messages {
			body := string(message.Body)
			received[body] = true
			tag, known := r.sent[body]
			if !known || tag != message.GetTags() || message.GetKeys() != "key-"+body {
				unexpected[body] = true
			}
			wasComplete := len(missing) == 0
			delete(missing, body)
			if len(missing) == 0 && !wasComplete {
				close(all)
			}
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := c.Subscribe(r.topic, consumer.MessageSelector{}, listener); err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	select {
	case <-all:
	case <-time.After(r.timeout):
	}
	// The client waits for its long polls when it stops; the process ends anyway.
	go c.Shutdown()
	lock.Lock()
	defer lock.Unlock()
	return facts{
		"expected": len(r.sent), "received": len(received),
		"missing": keys(missing), "unexpected": keys(unexpected),
	}, nil
}

func keys(set map[string]bool) []string {
	names := make([]string, 0, len(set))
	for name := range set {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func isEmpty(fact any) bool {
	names, _ := fact.([]string)
	return len(names) == 0
}

func (r *round) run(name string) bool {
	start := time.Now()
	line := facts{}
	scenario, known := scenarios[name]
	err := fmt.Errorf("unknown scenario %q", name)
	if known {
		line, err = scenario(r)
	}
	if line == nil {
		line = facts{}
	}
	ok := err == nil && isEmpty(line["missing"]) && isEmpty(line["unexpected"])
	if err != nil {
		line["error"] = err.Error()
	}
	line["scenario"], line["ok"], line["ms"] = name, ok, time.Since(start).Milliseconds()
	print(line)
	return ok
}

func print(line facts) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}

func number(text string, otherwise int) int {
	if text == "" {
		return otherwise
	}
	value, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	rlog.SetLogLevel("warn")
	options := map[string]string{}
	names := []string{}
	for _, argument := range os.Args[1:] {
		key, value, isOption := strings.Cut(argument, "=")
		if isOption {
			options[key] = value
		} else {
			names = append(names, argument)
		}
	}
	r := &round{
		nameserver: options["nameserver"], broker: options["broker"],
		topic: options["topic"], group: options["group"],
		count:   number(options["count"], 16),
		timeout: time.Duration(number(options["timeout"], 30)) * time.Second,
		sent:    map[string]string{},
	}
	failed := []string{}
	for _, name := range names {
		if !r.run(name) {
			failed = append(failed, name)
		}
	}
	verdict, code := "pass", 0
	if len(failed) > 0 {
		verdict, code = "fail", 1
	}
	print(facts{"verdict": verdict, "scenarios": len(names), "failed": failed})
	os.Exit(code)
}
