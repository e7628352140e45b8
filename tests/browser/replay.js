// Do on this page's GPU what a recording says, with the kernels of llmpy/webgpu.
// What is in a recording is told in recording.py.

const fromBase64 = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const toBase64 = (bytes) => btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join(""));

async function fetchText(path) {
  const response = await fetch(path);
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  return response.text();
}

// Make the pipelines, each file compiled once.
async function makePipelines(device, pipelines) {
  const modules = {};
  for (const [file] of pipelines) {
    modules[file] ??= device.createShaderModule({ code: await fetchText(`${file}.wgsl`) });
  }
  return Promise.all(pipelines.map(([file, entryPoint, constants]) =>
    device.createComputePipelineAsync({
      layout: "auto",
      compute: { module: modules[file], entryPoint, constants },
    })));
}

function makeGroup(device, pipeline, index, bindings, buffers) {
  return device.createBindGroup({
    layout: pipeline.getBindGroupLayout(index),
    entries: bindings.map(([binding, buffer, offset, size]) =>
      ({ binding, resource: { buffer: buffers[buffer], offset, size } })),
  });
}

// Collects commands, and sends them before a buffer is written.
class Sender {
  constructor(device, buffers, pipelines) {
    Object.assign(this, { device, buffers, pipelines, encoder: null });
  }

  commands() {
    return (this.encoder ??= this.device.createCommandEncoder());
  }

  send() {
    if (this.encoder) this.device.queue.submit([this.encoder.finish()]);
    this.encoder = null;
  }

  write(buffer, offset, text) {
    this.send();
    this.device.queue.writeBuffer(this.buffers[buffer], offset, fromBase64(text));
  }

  clear(buffer, offset, size) {
    this.commands().clearBuffer(this.buffers[buffer], offset, size);
  }

  copy(source, from, target, to, size) {
    this.commands().copyBufferToBuffer(this.buffers[source], from, this.buffers[target], to, size);
  }

  dispatch(pipeline, groups, grid) {
    const pass = this.commands().beginComputePass();
    pass.setPipeline(this.pipelines[pipeline]);
    groups.forEach((bindings, i) => pass.setBindGroup(
      i, makeGroup(this.device, this.pipelines[pipeline], i, bindings, this.buffers)));
    pass.dispatchWorkgroups(...grid);
    pass.end();
  }

  async read(places) {
    const parts = [];
    for (const [buffer, offset, size] of places) {
      const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
      const staged = this.device.createBuffer({ size, usage });
      this.commands().copyBufferToBuffer(this.buffers[buffer], offset, staged, 0, size);
      this.send();
      await staged.mapAsync(GPUMapMode.READ);
      parts.push(...new Uint8Array(staged.getMappedRange()));
      staged.destroy();
    }
    return toBase64(parts);
  }
}

// Give what the recording names as results, in base64, and what computed it.
async function replay(path) {
  const recording = JSON.parse(await fetchText(path));
  const adapter = await navigator.gpu.requestAdapter();
  if (!adapter) throw new Error("navigator.gpu has no adapter");
  const device = await adapter.requestDevice();
  device.pushErrorScope("validation");
  const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.UNIFORM |
    GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
  const buffers = recording.buffers.map((size) => device.createBuffer({ size, usage }));
  const pipelines = await makePipelines(device, recording.pipelines);
  const sender = new Sender(device, buffers, pipelines);
  for (const [name, ...words] of recording.commands) sender[name](...words);
  const results = {};
  for (const name in recording.results) results[name] = await sender.read(recording.results[name]);
  const error = await device.popErrorScope();
  if (error) throw error;
  const { vendor, architecture, description } = adapter.info;
  return { adapter: `${vendor} ${architecture} ${description}`, results };
}
