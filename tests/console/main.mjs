// Runs one scenario: `node main.mjs NAME`.

import { launch } from "./browser.mjs";
import { choosePassword } from "./server.mjs";

const [, , name] = process.argv;
const { default: scenario } = await import(`./scenarios/${name}.mjs`);
if (name !== "session") await choosePassword();
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
