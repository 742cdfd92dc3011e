// A session that lasts a few seconds: the page warns, then asks to log in again.

import { logIn, open } from "../browser.mjs";
import { admin } from "../server.mjs";

export default async function expiry(browser) {
  const page = await open(browser, { expected: [/401/] });
  await logIn(page, admin.name, admin.password);
  await page.getByText(/Your session ends at/).waitFor();
  await page.getByText("Your session has ended.").waitFor();
  await page.expectNoFaults();
}
