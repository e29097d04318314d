// Runs a recipe for Node of docs/clients.md: recipe.js PAGE NAME NODE_MODULES PORT [PORT].
// With two ports it prints each ID. The test kills or stops a daemon meanwhile. With one port it draws from
// a daemon that refuses it, and prints how often that was.
const fs = require('node:fs');

const [page, name, modules, ...ports] = process.argv.slice(2);
const text = fs.readFileSync(page, 'utf8');
const code = ['js', `js ${name}`].map((fence) => text.split(`\`\`\`${fence}\n`)[1].split('```')[0]).join('');
const load = new Function('require', `${code}\nreturn { Ids, connect };`);
const { Ids, connect } = load((module) => require(`${modules}/${module}`));

async function main() {
    const ids = new Ids(connect, ports.map((port) => ({ host: '127.0.0.1', port: Number(port) })));
    if (ports.length === 1) {
        let refused = 0;
        const [fetcher] = ids.fetchers;
        // Not before the connection of node-redis is there.
        ids.fetchers[0] = () => fetcher().catch((error) => { refused += /NOAUTH|401/.test(error); throw error; });
        await ids.next().catch((error) => { throw new Error(`refused ${refused} times: ${error.message}`); });
    }
    for (let drawn = 0; drawn < 6_000; drawn += 10) {
        // Calls at once share the buffer.
        console.log((await Promise.all(Array.from({ length: 10 }, () => ids.next()))).join('\n'));
        await new Promise((resolve) => setTimeout(resolve, 4));
    }
    process.exit(0);
}

main().catch((error) => { console.error(error); process.exit(1); });
