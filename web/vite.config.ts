import { defineConfig } from "vite";

// Everything is relative: the page runs from any folder of any server, and from `plimsoll serve`.
export default defineConfig({
  base: "./",
  server: { fs: { allow: [".."] } },
  worker: { format: "es" },
  build: { outDir: "../build/page", emptyOutDir: true, target: "es2022" },
});
