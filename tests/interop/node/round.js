'use strict';

// Runs scenarios of the Node client ali-ons and prints one line of JSON for each.
//
// Usage: node round.js nameserver=HOST:PORT topic=T group=G [count=N] [timeout=SECONDS] SCENARIO...
// The lines, the options and the meaning of the verdict are those of Round.java.

const { Consumer, Message, Producer } = require('ali-ons');

// ali-ons writes its log to the console unless told otherwise; ours holds the result lines.
const quiet = { info() {}, debug() {}, warn: console.error, error: console.error };

function clientOptions(round) {
  // httpclient is mandatory, but only used to look up name servers over HTTP.
  return { nameSrv: round.nameserver, httpclient: {}, logger: quiet };
}

async function syncSend(round) {
  const producer = new Producer({ ...clientOptions(round), producerGroup: `${round.group}-producer` });
  await producer.ready();
  const brokers = new Set();
  for (let i = 0; i < round.count; i++) {
    const tag = i % 2 === 0 ? 'TagA' : 'TagB';
    const body = `sync-send-${i}`;
    const message = new Message(round.topic, tag, body);
    message.keys = [`key-${body}`];
    const result = await producer.send(message);
    if (result.sendStatus !== 'SEND_OK') throw new Error(`not stored: ${JSON.stringify(result)}`);
    brokers.add(result.messageQueue.brokerName);
    round.sent.set(body, tag);
  }
  await producer.close();
  return { sent: round.count, brokers: [...brokers].sort() };
}

async function pushConsume(round) {
  const consumer = new Consumer({
    ...clientOptions(round),
    consumerGroup: `${round.group}-push`,
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
  });
  const received = new Set();
  const unexpected = new Set();
  const missing = new Set(round.sent.keys());
  await new Promise((resolve, reject) => {
    setTimeout(resolve, round.timeout * 1000);
    consumer.on('error', reject);
    consumer.subscribe(round.topic, '*', async message => {
      const body = message.body.toString();
      received.add(body);
      missing.delete(body);
      if (round.sent.get(body) !== message.tags) unexpected.add(body);
      if (missing.size === 0) resolve();
    });
  });
  // Closing waits for a long poll of up to fifteen seconds; the process ends anyway.
  return {
    expected: round.sent.size,
    received: received.size,
    missing: [...missing].sort(),
    unexpected: [...unexpected].sort(),
  };
}

const scenarios = { 'sync-send': syncSend, 'push-consume': pushConsume };

async function run(round, name) {
  const start = Date.now();
  const line = { scenario: name };
  try {
    if (!(name in scenarios)) throw new Error(`unknown scenario, known are ${Object.keys(scenarios)}`);
    Object.assign(line, await scenarios[name](round));
    line.ok = !(line.missing?.length || line.unexpected?.length);
  } catch (e) {
    Object.assign(line, { ok: false, error: e.stack });
  }
  console.log(JSON.stringify({ ...line, ms: Date.now() - start }));
  return line.ok;
}

async function main() {
  const options = {};
  const names = [];
  for (const argument of process.argv.slice(2)) {
    const [key, ...value] = argument.split('=');
    if (value.length) options[key] = value.join('=');
    else names.push(argument);
  }
  const round = {
    ...options,
    count: Number(options.count ?? 16),
    timeout: Number(options.timeout ?? 30),
    sent: new Map(),
  };
  const failed = [];
  for (const name of names) {
    if (!(await run(round, name))) failed.push(name);
  }
  const verdict = failed.length ? 'fail' : 'pass';
  console.log(JSON.stringify({ verdict, scenarios: names.length, failed }));
  process.exit(failed.length ? 1 : 0);
}

main();
