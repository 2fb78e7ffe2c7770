/** The API's description: Swagger UI over the service's own OpenAPI document. */
import "swagger-ui-dist/swagger-ui.css";
import SwaggerUI from "swagger-ui-dist/swagger-ui-es-bundle.js";

SwaggerUI({ url: "/openapi.json", dom_id: "#docs", validatorUrl: null, deepLinking: true });
