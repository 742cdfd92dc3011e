// Runs one scenario: `node main.mjs NAME`.

import { launch } from "./browser.mjs";

const { default: scenario } = await import(`./scenarios/${process.argv[2]}.mjs`);
const browser = await launch();
try {
  await scenario(browser);
} catch (error) {
  const pages = browser.contexts().flatMap((context) => context.pages());
  for (const page of pages) console.error(`at ${page.url()}\n${await page.locator("body").innerText().catch(() => "")}`);
  console.error(error);
  process.exitCode = 1;
} finally {
  await browser.close();
}
process.exit();
