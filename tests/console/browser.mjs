// A real Chromium for the scenarios. Anything that a page must never do fails the scenario: an error on its console, an exception, a
// violation of its policy, a dialog, a request to another host.

import { createRequire } from "node:module";
import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";

const modules = process.env.CONSOLE_MODULES;
const require = createRequire(join(modules, "package.json"));
const { chromium } = require("playwright-core");
const axe = await readFile(require.resolve("axe-core/axe.min.js"), "utf8");

export const base = process.env.CONSOLE_URL;
const DESKTOP = { width: 1280, height: 860 };
export const PHONE = { width: 390, height: 844 };

/** Time that a condition may take. Generous, because the machine may be busy. */
export const PATIENCE = Number(process.env.CONSOLE_PATIENCE ?? 60_000);

export async function launch() {
  return chromium.launch({ executablePath: process.env.CONSOLE_CHROMIUM, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
}

/**
 * A page in a context of its own. `expected` are patterns of console errors that belong to the scenario, such as the browser's line
 * about a status that was asked for. `storageState` has the cookies and the storage of another context, whose user is logged in then.
 */
export async function open(browser, { viewport = DESKTOP, colorScheme = "light", expected = [], storageState } = {}) {
  const context = await browser.newContext({ viewport, colorScheme, storageState, permissions: ["clipboard-read", "clipboard-write"] });
  context.setDefaultTimeout(PATIENCE);
  await context.addInitScript(() => {
    window.violations = [];
    document.addEventListener("securitypolicyviolation", (event) => {
      const where = `${event.sourceFile}:${event.lineNumber}:${event.columnNumber}`;
      window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample} at ${where}`);
    });
  });
  const page = await context.newPage();
  const faults = [];
  const isExpected = (text) => expected.some((pattern) => pattern.test(text));
  page.on("console", (message) => {
    const text = `${message.text()} ${message.location().url ?? ""}`;
    if (["error", "warning"].includes(message.type()) && !isExpected(text)) faults.push(`console: ${text}`);
  });
  page.on("pageerror", (error) => faults.push(`exception: ${error.stack}`));
  page.on("dialog", async (dialog) => {
    if (dialog.type() !== "beforeunload") faults.push(`dialog: ${dialog.message()}`);
    await dialog.accept();
  });
  context.on("request", (request) => {
    if (new URL(request.url()).origin !== base && !request.url().startsWith("data:")) faults.push(`request: ${request.url()}`);
  });
  page.expectNoFaults = async () => {
    faults.push(...(await page.evaluate(() => window.violations.splice(0))).map((text) => `policy: ${text}`));
    if (faults.length > 0) throw new Error(`the page did what it must not do:\n${faults.join("\n")}`);
  };
  return page;
}

/** Goes to a view of the console. */
export async function visit(page, path) {
  await page.goto(`${base}/#/${path}`);
}

/** Waits until the view has what it asked the server for. */
export async function loaded(page) {
  await page.locator("main").getByRole("heading").first().waitFor();
  await page.waitForFunction(() => !document.querySelector("main .loading, main [aria-busy=true]"));
}

export async function logIn(page, name, password) {
  await page.goto(`${base}/`);
  await page.getByLabel("Name").fill(name);
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.locator("#main").waitFor();
}

/** Replaces the text of an editor. */
export async function write(page, label, text) {
  await page.getByRole("textbox", { name: label }).click();
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.insertText(text);
}

/** Fails if axe finds something serious on the page as it is. */
export async function checkAccessibility(page, name) {
  // As an expression of the debugger, to which the policy of the page does not apply.
  await page.evaluate(`if (!window.axe) { ${axe} }`);
  const found = await page.evaluate(async () => {
    const result = await window.axe.run(document, { resultTypes: ["violations"] });
    return result.violations.map(({ id, impact, help, nodes }) => ({ id, impact, help,
      nodes: nodes.slice(0, 5).map((node) => `${node.target.flat().join(" ")}: ${node.failureSummary}`) }));
  });
  const serious = found.filter(({ impact }) => ["serious", "critical"].includes(impact));
  if (serious.length > 0) throw new Error(`${name} is not accessible:\n${JSON.stringify(serious, null, 2)}`);
}

/** Keeps a picture of the page if the run is to make them. */
export async function picture(page, name) {
  const directory = process.env.CONSOLE_SCREENSHOTS;
  if (!directory) return;
  await mkdir(directory, { recursive: true });
  await page.screenshot({ path: join(directory, `${name}.png`) });
}
