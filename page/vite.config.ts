import { defineConfig } from "vite";

export default defineConfig({
  base: "/",
  build: {
    outDir: "../service/page",
    emptyOutDir: true,
    // The policy of the page allows no data but pictures, and no inline script.
    assetsInlineLimit: 0,
    // What is bundled asks for its licence to go with it.
    license: { fileName: "licences.md" },
    modulePreload: { polyfill: false },
    rollupOptions: { input: ["index.html", "docs.html"] },
  },
  // The charts' library is written for React, whose part Preact plays.
  resolve: {
    alias: { "react/jsx-runtime": "preact/jsx-runtime", react: "preact/compat" },
  },
  server: { proxy: { "/v1": "http://127.0.0.1:8000" } },
});
