// Pages of lines from the server.

export class LinesApi {
  constructor(url, source) {
    this.url = url;
    this.source = source;
  }

  async page(parameters = {}, filter = null) {
    const query = new URLSearchParams([
      ...new URLSearchParams(this.source), ...(filter ?? []), ...Object.entries(parameters),
    ]);
    const answer = await fetch(`${this.url}?${query}`, { headers: { Accept: "application/json" } });
    const body = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Error(body.message ?? `The server did not give the lines (${answer.status}).`);
    return body;
  }
}
