// npm's memcached (text) and memjs (binary): each reads on in the right place after commands that
// the daemon refuses. Prints nothing; fails by an exception. Arguments: the port, and the directory
// of the packages.
const [port, modules] = process.argv.slice(2);
const assert = require('node:assert');
const Memcached = require(`${modules}/memcached`);
const memjs = require(`${modules}/memjs`);

const SPLIT = 2n ** 53n;
const isOf = (source, number) => assert.equal(BigInt(number) >= SPLIT, source === 'fast', `${source} ${number}`);

async function text() {
  const client = new Memcached(`127.0.0.1:${port}`, { retries: 0, failures: 100 });
  const call = (name, ...rest) =>
    new Promise((done, fail) => client[name](...rest, (error, value) => (error ? fail(error) : done(value))));
  for (const refused of ['set', 'add', 'replace']) {
    await assert.rejects(call(refused, 'fast', 'get fast', 10));
    // The library turns digits into a number, so it gets the source of small numbers.
    isOf('slow', await call('get', 'slow'));
  }
  const found = await call('gets', 'slow');
  isOf('slow', found.slow);
  assert.equal(String(found.cas), String(found.slow));
  await assert.rejects(call('cas', 'slow', 'get fast', found.cas, 10));
  isOf('slow', await call('incr', 'slow', 1));
  client.end();
}

async function binary() {
  const client = memjs.Client.create(`127.0.0.1:${port}`, { retries: 0, timeout: 10 });
  await assert.rejects(client.set('fast', 'get fast', {}));
  isOf('fast', (await client.get('fast')).value.toString());
  assert.equal(await client.delete('fast'), false);
  isOf('slow', (await client.get('slow')).value.toString());
  isOf('slow', (await client.increment('slow', 1, { initial: 1 })).value);
  client.close();
}

text().then(binary).catch((error) => {
  console.error(error);
  process.exit(1);
});
