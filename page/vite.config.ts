import { defineConfig } from "vite";

export default defineConfig({
  base: "/",
  build: {
    outDir: "../service/page",
    emptyOutDir: true,
    // The policy of the page allows no data but pictures, and no inline script.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rollupOptions: { input: ["index.html", "docs.html"] },
  },
  server: { proxy: { "/v1": "http://127.0.0.1:8000" } },
});
