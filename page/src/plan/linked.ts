/** Which call, and which GPUs, chart, map and tables point out together. */
import { createContext } from "preact";
import { useContext, useMemo, useState } from "preact/hooks";

export interface Linked {
  /** The call that is pointed at, else the chosen one. */
  call: string | null;
  chosen: string | null;
  /** The segment whose memory is shown, if one was chosen. */
  segment: string | null;
  point: (call: string | null) => void;
  choose: (call: string) => void;
  chooseSegment: (segment: string) => void;
}

const nothing = () => {};
export const LinkedContext = createContext<Linked>({
  call: null,
  chosen: null,
  segment: null,
  point: nothing,
  choose: nothing,
  chooseSegment: nothing,
});

export function useLinks(): Linked {
  const [chosen, setChosen] = useState<string | null>(null);
  const [pointed, point] = useState<string | null>(null);
  const [segment, setSegment] = useState<string | null>(null);
  return useMemo(
    () => ({
      call: pointed ?? chosen,
      chosen,
      segment,
      point,
      choose: (call) => setChosen((before) => (before === call ? null : call)),
      chooseSegment: setSegment,
    }),
    [chosen, pointed, segment],
  );
}

/** What makes an element point at a call, by pointer and keyboard alike. */
export function usePointing(call: string) {
  const links = useContext(LinkedContext);
  return {
    onMouseEnter: () => links.point(call),
    onMouseLeave: () => links.point(null),
    onFocus: () => links.point(call),
    onBlur: () => links.point(null),
  };
}

/** Enter and space press what is drawn as they press a button. */
export function onPress(press: () => void) {
  return {
    onClick: press,
    onKeyDown: (event: KeyboardEvent) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      press();
    },
  };
}
