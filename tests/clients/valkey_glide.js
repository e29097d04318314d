// valkey-glide for JavaScript, which reads integers as floating-point numbers: no two of its IDs are
// equal. Arguments: the port, and the directory of the packages.
const [port, modules] = process.argv.slice(2);
const assert = require('node:assert');
const { GlideClient } = require(`${modules}/@valkey/valkey-glide`);

async function main() {
  const client = await GlideClient.createClient({
    addresses: [{ host: '127.0.0.1', port: Number(port) }],
    // By default a reply may take 250 ms, and a busy machine takes longer.
    requestTimeout: 60_000,
  });
  const ids = new Set();
  for (let drawn = 0; drawn < 2000; drawn += 1) ids.add(String(await client.incr('fast')));
  assert.equal(ids.size, 2000);
  client.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
