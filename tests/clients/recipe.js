// Runs a recipe for Node of docs/clients.md: recipe.js PAGE NAME NODE_MODULES PORT PORT.
// Prints each ID. The test kills a daemon meanwhile.
const fs = require('node:fs');

const [page, name, modules, one, other] = process.argv.slice(2);
const text = fs.readFileSync(page, 'utf8');
const code = ['js', `js ${name}`].map((fence) => text.split(`\`\`\`${fence}\n`)[1].split('```')[0]).join('');
const load = new Function('require', `${code}\nreturn { Ids, connect };`);
const { Ids, connect } = load((module) => require(`${modules}/${module}`));

async function main() {
    const ids = new Ids(connect, [one, other].map((port) => ({ host: '127.0.0.1', port: Number(port) })));
    for (let drawn = 0; drawn < 6_000; drawn += 10) {
        // Calls at once share the buffer.
        console.log((await Promise.all(Array.from({ length: 10 }, () => ids.next()))).join('\n'));
        await new Promise((resolve) => setTimeout(resolve, 4));
    }
    process.exit(0);
}

main().catch((error) => { console.error(error); process.exit(1); });
