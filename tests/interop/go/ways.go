// Further ways to send and to consume; main.go has the round that runs them.
package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

func init() {
	for name, scenario := range map[string]func(*round) (facts, error){
		"async-send":     (*round).asyncSend,
		"oneway-send":    (*round).onewaySend,
		"batch-send":     (*round).batchSend,
		"tag-filter":     (*round).tagFilter,
		"sql-filter":     (*round).sqlFilter,
		"orderly":        (*round).orderly,
		"broadcasting":   (*round).broadcasting,
		"delay-level":    (*round).delayLevel,
		"retry":          (*round).retry,
		"dead-letter":    (*round).deadLetter,
		"transaction":    (*round).transaction,
		"pull":           (*round).pull,
		"request-reply":  (*round).requestReply,
		"trace":          (*round).trace,
		"administration": (*round).administration,
	} {
		scenarios[name] = scenario
	}
}

// withProducer starts a producer, works with it and ends it.
func (r *round) withProducer(work func(rocketmq.Producer) error, more ...producer.Option) error {
	options := append([]producer.Option{
		producer.WithNsResolver(r.resolver()),
		producer.WithGroupName(r.group + "-producer"),
		producer.WithSendMsgTimeout(10 * time.Second),
	}, more...)
	p, err := rocketmq.NewProducer(options...)
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	defer p.Shutdown()
	return work(p)
}

// next makes a message whose body, tag and key the push consumer expects.
func (r *round) next(kind string, i int) *primitive.Message {
	tag := []string{"TagA", "TagB"}[i%2]
	body := fmt.Sprintf("%s-%d", kind, i)
	r.sent[body] = tag
	return primitive.NewMessage(r.topic, []byte(body)).WithTag(tag).WithKeys([]string{"key-" + body})
}

func stored(result *primitive.SendResult, err error) error {
	if err == nil && result.Status != primitive.SendOK {
		err = fmt.Errorf("not stored: %v", result)
	}
	return err
}

func (r *round) asyncSend() (facts, error) {
	errors := make(chan error, r.count)
	err := r.withProducer(func(p rocketmq.Producer) error {
		for i := 0; i < r.count; i++ {
			err := p.SendAsync(context.Background(), func(_ context.Context, result *primitive.SendResult, err error) {
				errors <- stored(result, err)
			}, r.next("async-send", i))
			if err != nil {
				return err
			}
		}
		for i := 0; i < r.count; i++ {
			select {
			case err := <-errors:
				if err != nil {
					return err
				}
			case <-time.After(r.timeout):
				return fmt.Errorf("answer %d did not come", i)
			}
		}
		return nil
	})
	return facts{"sent": r.count}, err
}

func (r *round) onewaySend() (facts, error) {
	err := r.withProducer(func(p rocketmq.Producer) error {
		for i := 0; i < r.count; i++ {
			if err := p.SendOneWay(context.Background(), r.next("oneway-send", i)); err != nil {
				return err
			}
		}
		return nil
	})
	return facts{"sent": r.count}, err
}

func (r *round) batchSend() (facts, error) {
	err := r.withProducer(func(p rocketmq.Producer) error {
		messages := []*primitive.Message{}
		for i := 0; i < r.count; i++ {
			messages = append(messages, r.next("batch-send", i))
		}
		return stored(p.SendSync(context.Background(), messages...))
	})
	return facts{"sent": r.count}, err
}

// seen is what consumers of one topic got, by body, and how often.
type seen struct {
	lock  sync.Mutex
	times map[string]int
	order map[int][]string
	grown chan struct{}
}

func newSeen() *seen {
	return &seen{times: map[string]int{}, order: map[int][]string{}, grown: make(chan struct{}, 10_000)}
}

func (s *seen) add(message *primitive.MessageExt) int {
	s.lock.Lock()
	defer s.lock.Unlock()
	body := string(message.Body)
	s.times[body]++
	queue := 0
	if message.Queue != nil {
		queue = message.Queue.QueueId
	}
	s.order[queue] = append(s.order[queue], body)
	s.grown <- struct{}{}
	return s.times[body]
}

// wait returns when enough was seen, or after the round's time with what is missing.
func (s *seen) wait(r *round, enough func() bool) bool {
	deadline := time.After(r.timeout)
	for {
		s.lock.Lock()
		done := enough()
		s.lock.Unlock()
		if done {
			return true
		}
		select {
		case <-s.grown:
		case <-deadline:
			return false
		}
	}
}

func (s *seen) compare(expected map[string]bool) facts {
	s.lock.Lock()
	defer s.lock.Unlock()
	missing, unexpected := map[string]bool{}, map[string]bool{}
	for body := range expected {
		if s.times[body] == 0 {
			missing[body] = true
		}
	}
	for body := range s.times {
		if !expected[body] {
			unexpected[body] = true
		}
	}
	return facts{"received": len(s.times), "missing": keys(missing), "unexpected": keys(unexpected)}
}

func (r *round) consume(
	topic, name string, selector consumer.MessageSelector,
	handle func(*primitive.MessageExt) consumer.ConsumeResult, more ...consumer.Option,
) error {
	options := append([]consumer.Option{
		consumer.WithNsResolver(r.resolver()),
		consumer.WithGroupName(r.group + "-" + name),
		consumer.WithInstance(fmt.Sprintf("%s-%d", name, time.Now().UnixNano())),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}, more...)
	c, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return err
	}
	listener := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		result := consumer.ConsumeSuccess
		for _, message := range messages {
			result = handle(message)
		}
		return result, nil
	}
	if err := c.Subscribe(topic, selector, listener); err != nil {
		return err
	}
	return c.Start() // ends with the process, as its long polls would
}

func (r *round) filtered(name string, selector consumer.MessageSelector, tag string) (facts, error) {
	expected := map[string]bool{}
	for body, its := range r.sent {
		if its == tag {
			expected[body] = true
		}
	}
	found := newSeen()
	err := r.consume(r.topic, name, selector, func(message *primitive.MessageExt) consumer.ConsumeResult {
		found.add(message)
		return consumer.ConsumeSuccess
	})
	if err != nil {
		return nil, err
	}
	found.wait(r, func() bool { return len(found.times) >= len(expected) })
	return found.compare(expected), nil
}

func (r *round) tagFilter() (facts, error) {
	return r.filtered("tag", consumer.MessageSelector{Type: consumer.TAG, Expression: "TagA || TagC"}, "TagA")
}

func (r *round) sqlFilter() (facts, error) {
	return r.filtered("sql", consumer.MessageSelector{Type: consumer.SQL92, Expression: "TAGS = 'TagB'"}, "TagB")
}

func (r *round) orderly() (facts, error) {
	topic := r.topic + "-ordered"
	expected := map[string]bool{}
	err := r.withProducer(func(p rocketmq.Producer) error {
		for i := 0; i < r.count; i++ {
			body := fmt.Sprintf("key%d-%03d", i%3, i)
			expected[body] = true
			message := primitive.NewMessage(topic, []byte(body))
			message.WithShardingKey(fmt.Sprintf("key%d", i%3))
			if err := stored(p.SendSync(context.Background(), message)); err != nil {
				return err
			}
		}
		return nil
	}, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	if err != nil {
		return nil, err
	}
	found := newSeen()
	failedOnce := false
	err = r.consume(topic, "ordered", consumer.MessageSelector{}, func(message *primitive.MessageExt) consumer.ConsumeResult {
		if string(message.Body) == "key1-004" && !failedOnce {
			failedOnce = true // it comes again before the others of its queue
			return consumer.SuspendCurrentQueueAMoment
		}
		found.add(message)
		return consumer.ConsumeSuccess
	}, consumer.WithConsumerOrder(true))
	if err != nil {
		return nil, err
	}
	found.wait(r, func() bool { return len(found.times) >= len(expected) })
	line := found.compare(expected)
	last := map[string]string{}
	for _, bodies := range found.order {
		for _, body := range bodies {
			if key := body[:4]; last[key] >= body {
				return line, fmt.Errorf("%s came after %s", body, last[key])
			}
			last[body[:4]] = body
		}
	}
	return line, nil
}

func (r *round) broadcasting() (facts, error) {
	first, second := newSeen(), newSeen()
	for _, found := range []*seen{first, second} {
		err := r.consume(r.topic, "broadcast", consumer.MessageSelector{}, func(message *primitive.MessageExt) consumer.ConsumeResult {
			found.add(message)
			return consumer.ConsumeSuccess
		}, consumer.WithConsumerModel(consumer.BroadCasting))
		if err != nil {
			return nil, err
		}
	}
	expected := map[string]bool{}
	for body := range r.sent {
		expected[body] = true
	}
	first.wait(r, func() bool { return len(first.times) >= len(expected) })
	second.wait(r, func() bool { return len(second.times) >= len(expected) })
	line := first.compare(expected)
	if other := second.compare(expected); !isEmpty(other["missing"]) {
		return other, nil
	}
	return line, nil
}

func (r *round) delayLevel() (facts, error) {
	topic := r.topic + "-delayed"
	sent := time.Now()
	err := r.withProducer(func(p rocketmq.Producer) error {
		message := primitive.NewMessage(topic, []byte("later"))
		message.WithDelayTimeLevel(1)
		return stored(p.SendSync(context.Background(), message))
	})
	if err != nil {
		return nil, err
	}
	found := newSeen()
	var after time.Duration
	err = r.consume(topic, "delayed", consumer.MessageSelector{}, func(message *primitive.MessageExt) consumer.ConsumeResult {
		after = time.Since(sent)
		found.add(message)
		return consumer.ConsumeSuccess
	})
	if err != nil {
		return nil, err
	}
	found.wait(r, func() bool { return len(found.times) > 0 })
	if after < 950*time.Millisecond {
		err = fmt.Errorf("delivered after %v", after)
	}
	line := found.compare(map[string]bool{"later": true})
	return line, err
}

func (r *round) sendOne(topic, body string) error {
	return r.withProducer(func(p rocketmq.Producer) error {
		return stored(p.SendSync(context.Background(), primitive.NewMessage(topic, []byte(body))))
	})
}

func (r *round) retry() (facts, error) {
	topic := r.topic + "-retried"
	if err := r.sendOne(topic, "again"); err != nil {
		return nil, err
	}
	found := newSeen()
	var counted int32
	err := r.consume(topic, "retried", consumer.MessageSelector{}, func(message *primitive.MessageExt) consumer.ConsumeResult {
		counted = message.ReconsumeTimes
		if found.add(message) < 2 {
			return consumer.ConsumeRetryLater
		}
		return consumer.ConsumeSuccess
	})
	if err != nil {
		return nil, err
	}
	found.wait(r, func() bool { return found.times["again"] >= 2 })
	if counted != 1 {
		err = fmt.Errorf("came with reconsumeTimes=%d", counted)
	}
	return found.compare(map[string]bool{"again": true}), err
}

func (r *round) deadLetter() (facts, error) {
	topic := r.topic + "-hopeless"
	if err := r.sendOne(topic, "hopeless"); err != nil {
		return nil, err
	}
	err := r.consume(topic, "hopeless", consumer.MessageSelector{}, func(*primitive.MessageExt) consumer.ConsumeResult {
		return consumer.ConsumeRetryLater
	}, consumer.WithMaxReconsumeTimes(0))
	if err != nil {
		return nil, err
	}
	found := newSeen()
	deadline := time.Now().Add(r.timeout)
	// There is no such topic before the first message is given up.
	for time.Now().Before(deadline) {
		err = r.consume("%DLQ%"+r.group+"-hopeless", "undertaker", consumer.MessageSelector{}, func(message *primitive.MessageExt) consumer.ConsumeResult {
			found.add(message)
			return consumer.ConsumeSuccess
		})
		if err == nil {
			break
		}
		time.Sleep(500 * time.Millisecond)
	}
	if err != nil {
		return nil, err
	}
	found.wait(r, func() bool { return len(found.times) > 0 })
	return found.compare(map[string]bool{"hopeless": true}), nil
}

// decider commits, rolls back, or says so only when it is asked.
type decider struct{}

func (decider) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	switch string(message.Body) {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	default:
		return primitive.UnknowState
	}
}

func (decider) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	if string(message.Body) == "unknown, then commit" {
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}

func (r *round) transaction() (facts, error) {
	topic := r.topic + "-transactions"
	p, err := rocketmq.NewTransactionProducer(
		decider{},
		producer.WithNsResolver(r.resolver()),
		producer.WithGroupName(r.group+"-transactions"),
		producer.WithInstanceName("transactions"),
	)
	if err != nil {
		return nil, err
	}
	if err := p.Start(); err != nil {
		return nil, err
	}
	for _, body := range []string{"commit", "rollback", "unknown, then commit", "unknown, then rollback"} {
		_, err := p.SendMessageInTransaction(context.Background(), primitive.NewMessage(topic, []byte(body)))
		if err != nil {
			return nil, err
		}
	}
	found := newSeen()
	err = r.consume(topic, "transacted", consumer.MessageSelector{}, func(message *primitive.MessageExt) consumer.ConsumeResult {
		found.add(message)
		return consumer.ConsumeSuccess
	})
	if err != nil {
		return nil, err
	}
	found.wait(r, func() bool { return len(found.times) >= 2 })
	return found.compare(map[string]bool{"commit": true, "unknown, then commit": true}), nil
}

func (r *round) pull() (facts, error) {
	c, err := rocketmq.NewPullConsumer(
		consumer.WithNsResolver(r.resolver()),
		consumer.WithGroupName(r.group+"-pull"),
		consumer.WithInstance("pull"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return nil, err
	}
	if err := c.Subscribe(r.topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}); err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	found := newSeen()
	expected := map[string]bool{}
	for body := range r.sent {
		expected[body] = true
	}
	deadline := time.Now().Add(r.timeout)
	for time.Now().Before(deadline) && len(found.times) < len(expected) {
		polled, err := c.Poll(context.Background(), time.Second)
		if consumer.IsNoNewMsgError(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, message := range polled.GetMsgList() {
			found.add(message)
		}
		c.ACK(context.Background(), polled, consumer.ConsumeSuccess)
	}
	return found.compare(expected), nil
}

func (r *round) requestReply() (facts, error) {
	topic := r.topic + "-requests"
	if err := r.sendOne(topic, "so that there is a topic"); err != nil {
		return nil, err
	}
	replier, err := rocketmq.NewProducer(
		producer.WithNsResolver(r.resolver()),
		producer.WithGroupName(r.group+"-replier"),
		producer.WithInstanceName("replier"),
	)
	if err != nil {
		return nil, err
	}
	if err := replier.Start(); err != nil {
		return nil, err
	}
	answer := func(message *primitive.MessageExt) consumer.ConsumeResult {
		if string(message.Body) != "question" {
			return consumer.ConsumeSuccess
		}
		// What it makes has no body (a mistake of 2.1.2), and goes out without one all the same.
		reply, err := consumer.CreateReplyMessage(message, []byte("answer"))
		if err == nil {
			reply.WithProperty("content", "answer")
			_, err = replier.SendSync(context.Background(), reply)
		}
		if err != nil {
			fmt.Println("no reply:", err)
		}
		return consumer.ConsumeSuccess
	}
	err = r.withProducer(func(p rocketmq.Producer) error {
		// A consumer of the same client tells the broker of the producer; else that takes 30 s.
		err := r.consume(topic, "replying", consumer.MessageSelector{}, answer, consumer.WithInstance("asking"))
		if err != nil {
			return err
		}
		reply, err := p.Request(context.Background(), r.timeout, primitive.NewMessage(topic, []byte("question")))
		if err == nil && reply.GetProperty("content") != "answer" {
			err = fmt.Errorf("the reply was %v", reply)
		}
		return err
	}, producer.WithInstanceName("asking"))
	return facts{}, err
}

func (r *round) trace() (facts, error) {
	traced := &primitive.TraceConfig{Access: primitive.Local, Resolver: r.resolver()}
	err := r.withProducer(func(p rocketmq.Producer) error {
		return stored(p.SendSync(context.Background(), primitive.NewMessage(r.topic+"-traced", []byte("traced"))))
	}, producer.WithTrace(traced), producer.WithInstanceName("traced"))
	if err != nil {
		return nil, err
	}
	found := newSeen()
	err = r.consume("RMQ_SYS_TRACE_TOPIC", "tracing", consumer.MessageSelector{}, func(message *primitive.MessageExt) consumer.ConsumeResult {
		found.add(message)
		return consumer.ConsumeSuccess
	})
	if err != nil {
		return nil, err
	}
	if !found.wait(r, func() bool { return len(found.times) > 0 }) {
		err = fmt.Errorf("no trace came")
	}
	return facts{"received": len(found.times)}, err
}

func (r *round) administration() (facts, error) {
	a, err := admin.NewAdmin(admin.WithResolver(r.resolver()))
	if err != nil {
		return nil, err
	}
	ctx, topic := context.Background(), r.topic+"-made"
	err = a.CreateTopic(ctx, admin.WithTopicCreate(topic), admin.WithBrokerAddrCreate(r.broker), admin.WithReadQueueNums(3), admin.WithWriteQueueNums(3))
	if err != nil {
		return nil, err
	}
	queues, err := a.FetchPublishMessageQueues(ctx, topic)
	if err != nil {
		return nil, err
	}
	list, err := a.FetchAllTopicList(ctx)
	if err != nil {
		return nil, err
	}
	listed := false
	for _, name := range list.TopicList {
		listed = listed || name == topic
	}
	if len(queues) != 3 || !listed {
		return nil, fmt.Errorf("%d queues, listed: %v", len(queues), listed)
	}
	groups, err := a.GetAllSubscriptionGroup(ctx, r.broker, 3*time.Second)
	if err != nil {
		return nil, err
	}
	err = a.DeleteTopic(ctx, admin.WithTopicDelete(topic), admin.WithBrokerAddrDelete(r.broker), admin.WithNameSrvAddr([]string{r.nameserver}))
	return facts{"queues": len(queues), "groups": len(groups.SubscriptionGroupTable)}, err
}
