// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Device panel: the latest sample of each device.
import { fill, h, say } from "../dom";
import { bytes, csvField, number } from "../format";
import { type Context, copyMenu, frame, type Panel } from "../panel";

interface Sample {
  rank: number;
  device: string;
  name: string;
  use: number;
  memory: number;
  clock: number;
  power: number;
  heat: number;
  throttle: string;
  rx: number;
  tx: number;
  trend: number[];
}

const HEADS = ["rank", "device", "busy %", "", "memory", "clock MHz", "power W", "°C", "received/s", "sent/s", "throttled by"];

export class DevicesPanel implements Panel {
  readonly root: HTMLElement;
  private readonly frame = frame("devices", "Devices");
  private readonly body = h("tbody");
  private shown = "";

  constructor(private readonly context: Context) {
    const head = h(
      "thead",
      {},
      h("tr", {}, ...HEADS.map((t, i) => h("th", { scope: "col", class: i === 1 || i === 10 ? "dts-text" : "" }, t))),
    );
    this.frame.body.append(
      h("div.dts-scroll", {}, h("table.dts-table", { "aria-label": "latest sample of each device" }, head, this.body)),
    );
    this.frame.controls.append(copyMenu(context, "devices", null, () => this.csv()));
    this.root = this.frame.root;
  }

  update(): void {
    const { rank } = this.context.place;
    const key = `${this.context.model.tables.devices.version}/${rank}`;
    if (this.root.hidden || key === this.shown) return;
    this.shown = key;
    const focused = this.body.contains(document.activeElement);
    const samples = this.samples();
    say(this.frame.sub, samples.length ? "latest sample" : "no device has been sampled yet");
    this.frame.body.hidden = !samples.length;
    fill(
      this.body,
      ...samples.map((s) =>
        h(
          "tr",
          {
            tabindex: 0,
            "aria-selected": s.rank === rank,
            class: s.rank === rank ? "dts-chosen" : "",
            onclick: () => this.context.go({ rank: s.rank }),
            onkeydown: (e) => {
              if ((e as KeyboardEvent).key === "Enter") this.context.go({ rank: s.rank });
            },
          },
          h("td", {}, String(s.rank)),
          h("td.dts-text", { title: s.name }, s.name ? `${s.device} ${s.name}` : s.device),
          h("td", {}, number(s.use)),
          h("td", {}, spark(s.trend)),
          ...[bytes(s.memory), number(s.clock), number(s.power), number(s.heat), bytes(s.rx), bytes(s.tx)].map((t) => h("td", {}, t)),
          h(
            "td.dts-text",
            { class: s.throttle ? "dts-costs dts-text" : "dts-text" },
            s.throttle.replaceAll("_", " ").replaceAll(",", ", ") || "–",
          ),
        ),
      ),
    );
    if (focused) this.body.querySelector<HTMLElement>(".dts-chosen")?.focus();
  }

  private samples(): Sample[] {
    const { tables, pool } = this.context.model;
    const found = new Map<string, Sample>();
    tables.devices.each(null, (c, i) => {
      const device = pool.text(c.device[i]) ?? "";
      const key = `${c.rank[i]}/${device}`;
      const trend = found.get(key)?.trend ?? [];
      trend.push(c.utilization[i]);
      found.set(key, {
        rank: c.rank[i],
        device,
        name: pool.text(c.name[i]) ?? "",
        use: c.utilization[i],
        memory: c.memory_bytes[i],
        clock: c.clock_mhz[i],
        power: c.power_w[i],
        heat: c.temperature_c[i],
        throttle: pool.text(c.throttle[i]) ?? "",
        rx: c.link_rx_bytes_s[i],
        tx: c.link_tx_bytes_s[i],
        trend,
      });
    });
    return [...found.values()].sort((a, b) => a.rank - b.rank || a.device.localeCompare(b.device));
  }

  private csv(): string {
    const lines = ["rank,device,name,busy_percent,memory_bytes,clock_mhz,power_w,temperature_c,received_bytes_s,sent_bytes_s,throttle"];
    for (const s of this.samples())
      lines.push([s.rank, s.device, s.name, s.use, s.memory, s.clock, s.power, s.heat, s.rx, s.tx, s.throttle].map(csvField).join());
    return lines.join("\n");
  }
}

/** The last minute of utilization as a small line. */
function spark(values: number[]): SVGElement {
  const last = values.slice(-60).map((v) => (Number.isFinite(v) ? v : 0));
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 60 14");
  svg.setAttribute("class", "dts-spark");
  svg.setAttribute("aria-hidden", "true");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  line.setAttribute("points", last.map((v, i) => `${60 - last.length + i},${13 - (Math.min(v, 100) / 100) * 12}`).join(" "));
  svg.append(line);
  return svg;
}
