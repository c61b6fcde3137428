// What sizes does a command allocate?   node example.js ls -l
'use strict';

const { Session, TraplineError } = require('./index.js'); // installed: require('trapline')

async function main(command) {
  const session = await Session.launch(command);
  try {
    await session.compile('pid$target::malloc:entry { @sizes = quantize(arg0); @calls = count(); }');
    await session.start();
    await session.wait();
    const snapshot = await session.snapshot();
    console.log(`calls of malloc: ${snapshot.get('calls').value}`);
    for (const { low, high, count } of snapshot.get('sizes').histogram) console.log(`${low}..${high}: ${count}`);
  } finally {
    await session.close();
  }
}

main(process.argv.length > 2 ? process.argv.slice(2) : ['ls']).catch((error) => {
  if (!(error instanceof TraplineError)) throw error;
  for (const diagnostic of error.diagnostics) console.error(diagnostic.text);
  console.error(error.message);
  process.exitCode = 1;
});
